"""A bar to watch long work by."""

from __future__ import annotations

from typing import Any


class _Silence:
    """A bar that nobody sees."""

    n = 0

    def update(self, n: int) -> None:
        self.n += n

    def set_postfix_str(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass


def progress_bar(total: int | None, progress: bool, unit: str) -> Any:
    """Return a bar to watch, if it is wanted and can be had."""
    if progress:
        try:
            from tqdm.auto import tqdm
        except ModuleNotFoundError:
            pass
        else:
            return tqdm(total=total, disable=None, unit=unit)
    return _Silence()
