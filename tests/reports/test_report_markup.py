"""Text of devices on the page: escaped, and without what is no character."""

import re

from hwbench.printable import shown
from hwbench.reports.drawing import plain
from hwbench.reports.fragments import code, missing
from hwbench.reports.markup import Html, element, join, table


def test_19_17_text_of_a_device_is_escaped_and_has_no_codes():
    said = '<script>alert("1")</script> \x1b[31m\u202e\ud800\0&'
    page = join([element("p", said, title=said), table(("reason",), [(said,)])])
    page.encode()
    assert "<script>" not in page
    assert not any(character in page for character in "\x1b\u202e\ud800\0")
    assert page.count("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; [31m&amp;") == 3


def test_text_in_a_figure_is_no_markup_and_keeps_its_quotes():
    assert plain('<a href="http://x">it\'s</a> & "more"') == '&lt;a href="http://x"&gt;it\'s&lt;/a&gt; &amp; "more"'


def test_html_stays_and_lines_stay():
    assert join([Html("<b>a</b>"), "a\n\tb"]) == "<b>a</b>a\n\tb"


def test_a_value_in_a_message_has_an_end():
    assert shown("\x1b") == "'\\x1b'"
    assert len(shown(10_000 * "x")) == 200


def test_an_option_is_not_broken_behind_a_hyphen():
    command = f"hwbench search --learn-from {'a' * 40}.csv --no-interpolate"
    for made in (code(command), missing(f"nothing; make it: {command}")):
        assert "<span>--learn-from</span>" in made.replace(" </span>", "</span>")
        assert re.sub(r"<[^>]*>", "", made).endswith(command)
    assert "<span>" not in missing("eight-- or a--b")
