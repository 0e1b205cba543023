from typing import Any

import pytest

from recombine.report.collect import Study
from recombine.report.figures import draw_figure
from tests.report.studies import whole_study


@pytest.fixture(scope="module")
def study() -> Study:
    return whole_study()


@pytest.fixture(scope="module")
def results(study: Study) -> Any:
    return draw_figure(study, "results")
