"""One line for each error that is not the user's doing, such as a full disk or a lack of memory."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's, the system's, or JAX's (an error of its own, known by this word alone)."""
    no_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return no_memory or isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


@contextmanager
def memory_errors() -> Iterator[None]:
    """JAX has an error of its own for memory that ran out; outside of this, it is Python's."""
    try:
        yield
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        raise MemoryError(str(error)) from error


def describe(error: BaseException) -> str:
    """An error for people to read: which file, and what the system says of it; or that memory ran out."""
    if out_of_memory(error):
        said = str(error).partition("\n")[0]
        return f"out of memory{f': {said}' if said else ''} (smaller sizes, or fewer runs at a time, need less)"
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
