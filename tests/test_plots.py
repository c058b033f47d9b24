"Plots: nothing over the edge, names apart, a PNG of its own at natural size."
import base64, struct

import matplotlib
import pytest
from matplotlib.text import Annotation

from tito_nb.plots import clipped, growth_plot, headline, style
from tito_nb.views.theme import DARK, LIGHT

LENGTHS = [64 * 2**k for k in range(7)]


def plot(**series):
    return growth_plot(LENGTHS, series, "A claim", "a measure")


@pytest.mark.parametrize("ends", [(1.0, 1.0, 1.0), (5.0, 4.9, 0.001), (10**6, 1.0, 1.1), (3.0,)])
def test_names_are_apart_and_inside(ends):
    figure = plot(**{f"a rather long name {i}": [end] * 7 for i, end in enumerate(ends)}).figure
    assert clipped(figure) == []
    names = [text.get_window_extent() for text in figure.axes[0].texts if isinstance(text, Annotation)]
    assert len(names) == len(ends) and not any(a.overlaps(b) for i, a in enumerate(names) for b in names[:i])


def test_a_text_over_the_edge_is_found():
    figure = plot(line=[1.0] * 7).figure
    figure.text(0.9, 0.5, "a text that is too long for this place")
    assert clipped(figure) == ["a text that is too long for this place"]


def test_a_plot_is_a_picture_and_a_sentence():
    one = plot(line=[1.0] * 7)
    data, metadata = one._repr_mimebundle_()
    assert struct.unpack(">II", one.png()[16:24]) == (1716, 924) and one.size == (858, 462) == tuple(metadata["image/png"].values())
    assert base64.b64decode(data["image/png"])[16:24] == one.png()[16:24] and '<img alt="A claim" ' in data["text/html"] and data["text/plain"] == "A claim"
    assert repr(one) == one.claim == "A claim" and "a measure" in [text.get_text() for text in one.figure.texts]


def test_series_must_fit():
    for series in ({"a": [1.0]}, {name: [1.0] * 7 for name in "abcd"}):
        with pytest.raises(ValueError, match="up to 3 series of 7 values"):
            plot(**series)


def test_style_is_not_left_behind():
    before = dict(matplotlib.rcParams)
    plot(line=[1.0] * 7)
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context(style(DARK)):
        assert matplotlib.rcParams["figure.facecolor"] == DARK["paper"] != LIGHT["paper"]


def test_large_numbers_are_written_out():
    labels = [label.get_text() for label in plot(line=[0.02] + [5.0] * 5 + [3e7]).figure.axes[0].get_yticklabels()]
    assert labels == ["0.01", "0.1", "1", "10", "100", "1,000", "10,000", "100,000", "1,000,000", "10,000,000"]
