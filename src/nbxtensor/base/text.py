"""Words for people to read: messages, tables, printed objects."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number and its noun: ``1 kernel``, ``2 kernels``; `plural` for nouns that do not just add an s."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
