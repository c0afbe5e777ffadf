"""Make the data of the classifier pages: short support tickets, each about billing, delivery or the login.

A ticket is a handful of words; about half of them belong to its topic, the others to none, so that a model has
something to learn. Everything is drawn from one seed: the same files come out each time.
"""

import csv
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "pages"
SEED = 7
TICKETS = 240
WIDTH = 8  # of the embedding
TOPICS = {
    "billing": ("invoice", "refund", "charge", "card", "payment", "price", "tax", "receipt", "coupon", "contract"),
    "delivery": ("parcel", "courier", "address", "package", "tracking", "shipment", "late", "box", "return", "depot"),
    "login": ("password", "account", "email", "reset", "code", "locked", "browser", "session", "username", "token"),
}
NEUTRAL = ("please", "hello", "thanks", "today", "again", "still", "my", "the", "help", "need", "problem", "since",
           "yesterday", "nothing", "works", "cannot", "could", "when", "after", "order", "number", "week", "app",
           "page", "error")  # fmt: skip
WORDS = [word for words in (*TOPICS.values(), NEUTRAL) for word in words]


def main() -> None:
    """Write the files."""
    rng = np.random.default_rng(SEED)
    tickets: list[tuple[int, int]] = []
    labels = []
    for ticket in range(TICKETS):
        topic = rng.integers(len(TOPICS))
        labels.append([int(position == topic) for position in range(len(TOPICS))])
        for _ in range(rng.integers(3, 11)):
            words = list(TOPICS.values())[topic] if rng.random() < 0.5 else NEUTRAL
            tickets.append((ticket, WORDS.index(words[rng.integers(len(words))])))
    write("tickets.csv", ("ticket", "word"), tickets)
    write("labels.csv", tuple(TOPICS), labels)
    words_of = [[str(word) for other, word in tickets if other == ticket] for ticket in range(TICKETS)]
    write("messages.csv", ("words", "topic"), [(" ".join(words), label.index(1))
                                               for words, label in zip(words_of, labels, strict=True)])  # fmt: skip
    write("words.csv", ("word",), [[word] for word in WORDS])
    np.save(FOLDER / "table.npy", rng.normal(0, 0.1, (len(WORDS), WIDTH)).astype(np.float32))


def write(name: str, head: tuple[str, ...], rows: list) -> None:
    """Write a table."""
    with (FOLDER / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
