"Plots: nothing over the edge, names apart, a PNG of its own at natural size."
import base64, struct

import matplotlib
import pytest
from matplotlib.text import Annotation

from tito_nb.plots import clipped, drift_share_plot, growth_plot, style, wilson
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


def test_wilson_is_the_set_of_shares_that_a_count_is_compatible_with():
    "A share is in the interval if and only if the count lies within z standard deviations of its mean"
    for total in (1, 7, 32):
        for count in range(total + 1):
            low, high = wilson(count, total)
            for share in [k / 200 for k in range(201)]:
                near = abs(count - total * share) <= 1.96 * (total * share * (1 - share)) ** 0.5
                assert near == (low <= share <= high) or min(abs(share - low), abs(share - high)) < 1e-9, (count, total, share)
    assert (wilson(0, 32)[0], wilson(32, 32)[1]) == (0, 1) and [round(x, 3) for x in wilson(2, 32)] == [0.017, 0.201]


@pytest.mark.parametrize("count, total", [(-1, 3), (4, 3), (0, 0)])
def test_wilson_needs_a_count_within_its_total(count, total):
    with pytest.raises(ValueError, match=f"not {count} of {total}"):
        wilson(count, total)


@pytest.mark.parametrize("palette", [LIGHT, DARK])
@pytest.mark.parametrize("counts", [(20, 2, 14), (32, 32, 32), (0, 0, 0), (32, 0, 9), (16,)])
def test_shares_are_inside_and_in_order(counts, palette):
    plot = drift_share_plot([(f"a prompt {i}", count, 32) for i, count in enumerate(counts)], "A claim", "a measure", palette)
    axes = plot.figure.axes[0]
    assert clipped(plot.figure) == [] and plot.claim == "A claim"
    squares = [line for line in axes.lines if line.get_marker() == "s"]
    assert [line.get_xdata()[0] * 32 for line in squares] == sorted(counts) and {line.get_color() for line in squares} == {palette["mito"]}
    bars = [line for line in axes.lines if line.get_solid_capstyle() == "butt" and line.get_marker() == "None" and line not in squares and line.get_lw() == 5]
    assert [tuple(line.get_xdata()) for line in bars] == [wilson(count, 32) for count in sorted(counts)]
    texts = [text.get_text() for text in axes.texts]
    assert [text for text in texts if "of 32" in text] == [f"{count} of 32" for count in sorted(counts)]
    assert f"all {32 * len(counts)}: {100 * sum(counts) / 32 / len(counts):.1f} %" in texts
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"a prompt {i}" for i in sorted(range(len(counts)), key=lambda i: counts[i])]
    names = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(names) for b in names[:i])
    assert "a measure; bars: 95 % interval (Wilson)" in [text.get_text() for text in plot.figure.texts]


def test_shares_need_a_row():
    with pytest.raises(ValueError, match="at least one row"):
        drift_share_plot([], "A claim", "a measure")
