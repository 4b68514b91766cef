"""An error as its user reads it."""

import traceback


def describe(error: BaseException) -> str:
    """An error as one line."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    text = str(error) or traceback.format_exception_only(error)[-1]
    return " ".join(text.split())
