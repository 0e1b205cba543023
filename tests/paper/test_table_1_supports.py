"""Table 1 (tab:task_distribution): the three supports, their held-out masks, and whether they are connected."""

import pytest

from recombine.task.support import paper_support

# Copied from the paper's table, row by row, as pairs of modules.
CONNECTED = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (1, 6)]
DISCONNECTED = [(1, 2), (2, 3), (1, 3), (4, 5), (5, 6), (4, 6)]
CONNECTED_PLUS = [*CONNECTED, (1, 3), (2, 4), (3, 5), (4, 6), (1, 5), (2, 6)]
ALL = [(i, j) for i in range(1, 7) for j in range(i + 1, 7)]


def mask(pair: tuple[int, int]) -> tuple[int, ...]:
    return tuple(int(m in pair) for m in range(1, 7))


@pytest.mark.parametrize(
    ("name", "pairs", "connected", "components"),
    [
        ("connected", CONNECTED, True, ((1, 2, 3, 4, 5, 6),)),
        ("disconnected", DISCONNECTED, False, ((1, 2, 3), (4, 5, 6))),
        ("connected+", CONNECTED_PLUS, True, ((1, 2, 3, 4, 5, 6),)),
    ],
)
def test_support(name: str, pairs: list, connected: bool, components: tuple) -> None:
    support = paper_support(name)
    assert support.masks == tuple(map(mask, pairs))
    assert set(support.held_out) == {mask(pair) for pair in ALL if pair not in pairs}
    assert support.connected is connected
    assert support.components == components


def test_the_held_out_masks_the_paper_names() -> None:
    """Appendix C.2: for Connected+, (1,0,0,1,0,0), (0,1,0,0,1,0), (0,0,1,0,0,1)."""
    expected = {(1, 0, 0, 1, 0, 0), (0, 1, 0, 0, 1, 0), (0, 0, 1, 0, 0, 1)}
    assert set(paper_support("connected+").held_out) == expected


def test_panel_d_trains_on_as_many_tasks_either_way() -> None:
    """Appendix C.2: "we make sure the same number of tasks is used during training in both settings"."""
    assert len(paper_support("connected").masks) == len(paper_support("disconnected").masks) == 6
