"""The commands of `klamm`: exit codes, what goes to which stream."""

from __future__ import annotations

import pytest

from klamm import __version__
from klamm.__main__ import main


def test_version(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"klamm {__version__}\n"


def test_config_lists_the_keys(capsys):
    assert main(["config"]) == 0
    assert "\nlog.segment.bytes=1073741824\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["start", "--override", "log.segment.bytes=12"], ["start", "/nowhere/x.properties"]]
)
def test_a_bad_config_is_one_line_and_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("klamm: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["stop"], ["start", "--log-level", "loud"]])
def test_a_bad_command_line_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", ["dump-log", "export-kafka", "repair", "restore", "snapshot", "user", "verify"])
def test_the_help_of_a_tool_has_exit_codes_and_examples(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "\nExit code: 0 " in text
    assert f"  klamm {command} " in text.split("\nexample", 1)[1]
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    "arguments",
    [
        ["dump-log"],
        ["dump-log", "--files", "a.log", "--offsets-decoder", "--transaction-log-decoder"],
        ["dump-log", "--files", "a.log", "--max-bytes", "0"],
        ["dump-log", "--files", " ,"],
        ["dump-log", "--files", "a.log", "--remote-log-metadata-decoder"],
        ["restore", "x", "--rename", "no-equals-sign"],
        ["verify", "--workers", "0"],
        ["verify", "--config", "x", "--log-dirs", "y"],
    ],
)
def test_a_bad_option_of_a_tool_is_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().out == ""


def test_a_decoder_that_is_not_there_is_named(capsys):
    assert main(["dump-log", "--files", "a.log", "--value-decoder-class", "org.example.Mine"]) == 2
    line = "klamm: --value-decoder-class: 'org.example.Mine' is not known, only string, long, integer, hex\n"
    assert capsys.readouterr().err == line
