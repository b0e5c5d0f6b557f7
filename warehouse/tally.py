"""The account of a batch while it is read."""


class Tally:
    """What arrived, counted from the pages themselves, and what is wrong with them."""

    def __init__(self) -> None:
        self.arrived = 0
        self.rejected = 0
        self.ignored = 0
        self.notes: dict[str, None] = {}
        self.faults: list[str] = []

    def note(self, words: str) -> None:
        self.notes[words] = None
