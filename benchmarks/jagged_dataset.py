"""A Parquet data set through `JaggedLoader`: rows a second, stopped half-way and resumed at its position.

    python benchmarks/jagged_dataset.py FOLDER [ROWS]

Writes the data into the folder, reads it with two workers to the middle, saves the position, goes on in a new loader,
and checks that each row came once.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from rowgrad.torch.data import JaggedDataset, JaggedLoader

FILES, GROUP, BATCH, WORKERS = 10, 100_000, 8192, 2


def write(folder: Path, rows: int) -> None:
    random = np.random.default_rng(0)
    for number in range(FILES):
        first, last = number * rows // FILES, (number + 1) * rows // FILES
        offsets = np.concatenate([[0], np.cumsum(random.integers(0, 5, last - first))])
        items = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(random.integers(0, 1000, offsets[-1])))
        table = pa.table({"row": np.arange(first, last), "items": items})
        pyarrow.parquet.write_table(table, folder / f"{number}.parquet", row_group_size=GROUP)


def main(folder: Path, rows: int) -> None:
    write(folder, rows)

    def loader() -> JaggedLoader:
        data = JaggedDataset(folder, ["items"], batch_size=BATCH, columns=["row"], shuffle=True, seed=1)
        return JaggedLoader(data, num_workers=WORKERS)

    seen = np.zeros(rows, np.uint8)
    begin, ids, count = time.perf_counter(), 0, 0
    first = loader()
    for batch in first:
        seen[batch.columns["row"].numpy()] += 1
        ids, count = ids + batch.features.values().numel(), count + len(batch.columns["row"])
        if count >= rows // 2:
            break
    state = first.state_dict()
    second = loader()
    second.load_state_dict(state)
    for batch in second:
        seen[batch.columns["row"].numpy()] += 1
        ids += batch.features.values().numel()
    seconds = time.perf_counter() - begin
    print(f"stopped at {count} of {rows} rows: {state}")
    print(f"each row once: {bool((seen == 1).all())}; {ids} ids, {seconds:.1f} s, {rows / seconds / 1e6:.2f} M rows/s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000)
