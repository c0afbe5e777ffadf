"""Which rows of an array differ from those in its file; only pages that were written to are compared."""

from rowgrad._kernels.compile import kernel
from rowgrad._kernels.raw import peek, poke


@kernel
def changed_rows(current, stored, pages, page_words, row_words, words, output):
    """Write the rows that differ in `pages` (ascending) to `output`, ascending; returns how many they are.

    Arrays are compared as words of any size, `page_words` to a page and `row_words` to a row; what follows the first
    `words` of them belongs to no row. A row that lies in two pages is written once.
    """
    count, last = 0, -1
    for i in range(pages.size):
        begin = min(max(peek(pages, i), 0) * page_words, words)
        end = min(begin + page_words, words)
        at = begin
        while at < end:
            row = at // row_words
            stop = min((row + 1) * row_words, end)
            differs = current[at] ^ current[at]
            for k in range(at, stop):
                differs |= peek(current, k) ^ peek(stored, k)
            if differs != 0 and row > last and count < output.size:
                poke(output, count, row)
                count += 1
                last = row
            at = stop
    return count
