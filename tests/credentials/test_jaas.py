"""JAAS texts: those that a broker understands, and what is said of the others. No error quotes a value."""

from __future__ import annotations

import pytest

from oncelog.broker.credentials.jaas import JaasError, parse


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("M required;", {}),
        ("M required a=b;", {"a": "b"}),
        ('M REQUIRED a="b c" ;', {"a": "b c"}),
        ('M required a="x\\"y" b="\\\\";', {"a": 'x"y', "b": "\\"}),
        ("M required a='x y';", {"a": "x y"}),
        ('M required\n  user_a="1"\n  user_b="2=3,;"\n;\n', {"user_a": "1", "user_b": "2=3,;"}),
        ('M optional a="";', {"a": ""}),
        ("M sufficient a = b;", {"a": "b"}),
    ],
)
def test_a_text(text: str, options: dict[str, str]) -> None:
    assert parse(text) == ("M", options)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not contain any login modules"),
        ("  ", "does not contain any login modules"),
        ("M", "expected MODULE and then one of required"),
        ("M;", "expected MODULE and then one of required"),
        ('M a="SECRET";', "expected MODULE and then one of required"),
        ('M required a="SECRET"', "not terminated by semi-colon"),
        ("M required", "not terminated by semi-colon"),
        ('M required a="SECRET;', "a quoted value has no end"),
        ("M required a='SECRET;", "a quoted value has no end"),
        ("M required a;", 'option 1 of M: expected key="value"'),
        ('M required a="1" SECRET;', 'option 2 of M: expected key="value"'),
        ("M required a=;", 'option 1 of M: expected key="value"'),
        ("M required =SECRET;", 'option 1 of M: expected key="value"'),
        ('M required a="SECRET"; N required;', "more than one login module"),
        ('M required a="SECRET";;', "more than one login module"),
    ],
)
def test_a_bad_text(text: str, said: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse(text)
    assert said in str(raised.value)
    assert "SECRET" not in str(raised.value)
