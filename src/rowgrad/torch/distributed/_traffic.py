"""Bytes that a rank sent to others, by what they were for."""

from collections import Counter


class Traffic:
    """Counts the bytes that a rank sends to other ranks.

    Attributes
    ----------
    sent : Counter
        Bytes by purpose: ``"counts"`` (sizes of what follows), ``"ids"`` (requested rows, with their bags and weights),
        ``"rows"`` (rows of the table, or partial sums of them; none where ranks read each other's tables),
        ``"gradients"``, ``"weights"`` (gradients of weights).
    exchanges : Counter
        How many exchanges there were, by purpose. Each costs a round trip, however little is sent.

    Examples
    --------
    >>> from rowgrad.torch.distributed import Traffic
    >>> traffic = Traffic()
    >>> traffic.add("ids", 400)
    >>> traffic.total, traffic
    (400, Traffic(ids: 400 bytes in 1))
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.exchanges: Counter[str] = Counter()

    def add(self, purpose: str, sent: int) -> None:
        """Count one more exchange, in which this rank sent this many bytes to others."""
        self.sent[purpose] += sent
        self.exchanges[purpose] += 1

    @property
    def total(self) -> int:
        """All bytes sent."""
        return self.sent.total()

    def reset(self) -> None:
        """Count from 0 again."""
        self.sent.clear()
        self.exchanges.clear()

    def __repr__(self) -> str:
        parts = (f"{purpose}: {sent} bytes in {self.exchanges[purpose]}" for purpose, sent in self.sent.items())
        return f"Traffic({', '.join(parts)})"
