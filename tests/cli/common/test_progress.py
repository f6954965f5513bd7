import io
import re

import rich.console

from object_detection.cli.common import progress


def _text(screen: io.StringIO) -> str:
    """What was written, without the terminal's colours."""
    return re.sub(r'\x1b\[[0-9;]*m', '', screen.getvalue())


def test_a_bar_with_counts_and_time_to_go_on_a_terminal():
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=100)
    with progress.show('predicting', console=console) as report:
        report(0, 8)
        report(3, 8)
    assert 'predicting' in screen.getvalue()
    # The time that has passed, and the time that is left, which is not known yet.
    assert re.search(r'3/8 images in 0:00:0\d · -:--:-- to go', _text(screen))


def test_a_counter_while_the_total_is_not_known():
    screen = io.StringIO()
    console = rich.console.Console(file=screen, force_terminal=True, width=100)
    with progress.show('evaluating', console=console) as report:
        report(16, None)
    assert '16/?' in screen.getvalue()


def test_a_line_each_half_minute_elsewhere(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
    console = rich.console.Console(file=io.StringIO())
    with progress.show('predicting', console=console) as report:
        # 10 s to load the model, then 2 s an image.
        for done in range(41):
            now[0] = 110.0 + 2 * done
            report(done, 40)
    output = capsys.readouterr()
    assert output.err.splitlines() == [
        'predicting: 10 of 40 images, 0:01:00 to go',
        'predicting: 25 of 40 images, 0:00:30 to go',
        'predicting: 40 of 40 images, 0:00:00 to go',
    ]
    assert output.out == ''


def test_lines_without_a_total(monkeypatch, capsys):
    monkeypatch.setattr(progress.system_console, 'SECONDS_BETWEEN_LINES', 0.0)
    with progress.show('evaluating', console=rich.console.Console(file=io.StringIO())) as report:
        report(7, None)
    assert capsys.readouterr().err == 'evaluating: 7 images\n'
