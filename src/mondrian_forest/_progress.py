"""A progress bar for long work."""

from __future__ import annotations

from typing import Any


class _HiddenBar:
    """Takes the place of a progress bar, and shows nothing."""

    n = 0

    def update(self, n: int) -> None:
        self.n += n

    def set_postfix_str(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass


def progress_bar(total: int | None, progress: bool, unit: str) -> Any:
    """Return a progress bar of tqdm, or one that shows nothing.

    It shows nothing if ``progress`` is False or tqdm is not installed.
    """
    if progress:
        try:
            from tqdm.auto import tqdm
        except ModuleNotFoundError:
            pass
        else:
            return tqdm(total=total, disable=None, unit=unit)
    return _HiddenBar()
