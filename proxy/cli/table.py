"""A table on the terminal."""

from collections.abc import Sequence


def printed_table(lines: Sequence[Sequence[str]]) -> None:
    """Print rows of cells in columns, figures to the right; the first row is the heading."""
    if not lines:
        return
    columns = range(len(lines[0]))
    widths = [max(len(line[i]) for line in lines) for i in columns]
    right = [len(lines) > 1 and all(_is_figure(line[i]) for line in lines[1:]) for i in columns]
    for line in lines:
        cells = [line[i].rjust(widths[i]) if right[i] else line[i].ljust(widths[i]) for i in columns]
        print("  ".join(cells).rstrip())


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("-", "")
