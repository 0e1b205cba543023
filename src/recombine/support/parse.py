"""Reads a support as a user writes it: by the paper's name, as K-hot, inline, or in a file."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recombine import paper
from recombine.errors import InputError, suggestion
from recombine.support.masks import format_mask, k_hot_masks
from recombine.support.support import Support, make_support, paper_support

LARGEST_FILE = 10_000_000
MOST_MODULES = 1_000
WAYS = f"give a name ({', '.join(paper.SUPPORTS)}), K-hot or K-hot:M, masks such as 110,011, or a file of masks"


def parse_support(value: Any, held_out: Any = None) -> Support:
    """The support that `value` names; `held_out` (masks, inline or as a list) overrides its held-out masks.

    value: 'connected+' · '2-hot' (of the paper's 6 modules) · '2-hot:8' (of 8 modules) · '110,011,101' · a path ·
    a list of masks · a mapping with `masks` and, optionally, `name` and `held_out`.
    """
    match value:
        case Support():
            support = value
        case str():
            support = _from_text(value.strip())
        case Mapping():
            support = _from_mapping(value)
        case list() | tuple():
            support = make_support("custom", value)
        case _:
            raise InputError("support", value, WAYS)
    if held_out is None:
        return support
    masks = _mask_list("held_out", held_out)
    if not masks:
        raise InputError("held_out", held_out, "name at least one mask, or leave it out")
    return make_support(support.name, support.masks, masks)


def unparse_support(support: Support) -> dict[str, Any]:
    """The support as a configuration file stores it: complete, each mask as a word such as '110000'."""
    return {
        "name": support.name,
        "masks": [format_mask(mask) for mask in support.masks],
        "held_out": [format_mask(mask) for mask in support.held_out],
    }


def _from_text(text: str) -> Support:
    if text.lower() in paper.SUPPORTS:
        return paper_support(text.lower())
    if k_hot := re.fullmatch(r"([0-9]{1,99})-hot(?::([0-9]{1,99}))?", text):
        num_modules, k = int(k_hot[2] or paper.NUM_MODULES), int(k_hot[1])
        if not 1 <= num_modules <= MOST_MODULES or not 1 <= k <= num_modules:
            raise InputError("support", text, f"K-hot:M has M from 1 to {MOST_MODULES} modules and K from 1 to M")
        return make_support(text, k_hot_masks(num_modules, k))
    if not text or re.fullmatch(r"[0-9,;()\[\]\s]+", text):
        return make_support("custom", _mask_list("support", text))
    path = Path(text)
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except (OSError, ValueError):  # a name no file system can hold
        is_file = is_directory = False
    if is_directory:
        raise InputError("support", text, f"is a directory; {WAYS}")
    if not is_file:
        raise InputError("support", text, f"no such name or file{suggestion(text, list(paper.SUPPORTS))}; {WAYS}")
    try:
        return _from_file(path)
    except InputError as error:
        raise InputError(f"{error.field} in {path.name}", error.value, error.expected) from error


def _from_file(path: Path) -> Support:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError("support", str(path), f"the file is larger than {LARGEST_FILE:,} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("support", str(path), f"the file cannot be read as text ({error})") from error
    if text.lstrip().startswith(("{", "[")):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # ValueError: also an integer of thousands of digits
            raise InputError("support", str(path), f"the file is not valid JSON ({error})") from error
        if isinstance(data, Mapping):
            return _from_mapping({"name": path.stem, **data})
        return make_support(path.stem, data)
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return make_support(path.stem, [_one_mask(line) for line in lines if line])


def _from_mapping(data: Mapping[Any, Any]) -> Support:
    known = ["name", "masks", "held_out", "connected", "components"]  # the last two follow from the masks
    for key in data:
        if key not in known:
            raise InputError(
                f"support.{key}", data[key], f"no such field{suggestion(str(key), known)}; it has {known[:3]}"
            )
    name, masks = data.get("name", "custom"), data.get("masks")
    if not isinstance(name, str):
        raise InputError("support.name", name, "a text")
    if not isinstance(masks, list | tuple):
        raise InputError("support.masks", masks, "a list of masks such as ['110', '011']")
    held_out = data.get("held_out")
    return make_support(name, masks, None if held_out is None else _mask_list("support.held_out", held_out))


def _mask_list(field: str, value: Any) -> tuple[Any, ...]:
    """Several masks as a user writes them: '110,011', '1,1,0;0,1,1', '(1,1,0),(0,1,1)', or a list."""
    if isinstance(value, list | tuple):
        return tuple(value)
    if not isinstance(value, str):
        raise InputError(field, value, "a list of masks such as 110,011")
    if re.search(r"[()\[\]]", value):
        one = r"[(\[][0-9,\s]+[)\]]"
        if not re.fullmatch(rf"\s*\[?\s*({one}\s*[,;]?\s*)+\]?\s*", value):
            raise InputError(field, value, "masks in brackets are written (1,1,0),(0,1,1)")
        return tuple(map(_one_mask, re.findall(one, value)))
    words = value.split(";") if ";" in value else re.split(r"[,\s]+", value)
    return tuple(_one_mask(word) for word in words if word.strip())


def _one_mask(text: str) -> str:
    """One mask without spaces, commas and brackets: '1, 1, 0' and '(1 1 0)' become '110'."""
    return re.sub(r"[\s,()\[\]]", "", text)
