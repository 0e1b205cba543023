"""The options of a baseline: its sizes, with defaults, checked."""

from recombine.checks import check_size
from recombine.config.model import CustomModelConfig
from recombine.config.schema import Config
from recombine.errors import InputError, suggestion


def read_sizes(config: Config, **defaults: int) -> dict[str, int]:
    """The sizes that `model.options` gives, on top of the defaults. Unknown names are errors that suggest another."""
    options = dict(config.model.options) if isinstance(config.model, CustomModelConfig) else {}
    for name, value in options.items():
        field = f"model.options.{name}"
        if name not in defaults:
            known = f"no such option{suggestion(name, list(defaults))}; there are {', '.join(defaults)}"
            raise InputError(field, value, known)
        check_size(field, value)
    sizes = defaults | options
    if sizes["embed_dim"] % sizes.get("num_heads", 1):
        expected = f"must divide embed_dim = {sizes['embed_dim']}"
        raise InputError("model.options.num_heads", sizes["num_heads"], expected)
    return sizes
