"""`tfod data_service`."""

import socket
import sys

from click.testing import CliRunner

from object_detection.cli import main
from object_detection.data.pipeline import data_service
from tests import rows


class _Servers:
    address = 'grpc://here:5050'

    def wait(self):
        sys.exit(143)


@rows.parametrize(
    ('options', 'served'),
    [
        ([], (0, {'dispatcher': None, 'host': None})),
        (
            ['--port', '5051', '--dispatcher', 'there:5050', '--host', 'here'],
            (5051, {'dispatcher': 'there:5050', 'host': 'here'}),
        ),
    ],
)
def test_serves_until_it_is_stopped_and_reports_the_address(monkeypatch, options, served):
    seen = []

    def serve(port, **others):
        seen.append((port, others))
        return _Servers()

    monkeypatch.setattr(data_service, 'serve', serve)
    result = CliRunner().invoke(main.main, ['data_service', *options])
    assert result.exit_code == 143
    assert result.stdout == 'serving; train with --data_service grpc://here:5050\n'
    assert seen == [served]


def test_what_cannot_be_served_is_one_sentence():
    with socket.create_server(('', 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main.main, ['data_service', '--port', port])
    assert result.exit_code == 1
    assert result.stderr.startswith('Error: --port: expected a free one for the dispatcher.')


def test_a_port_that_is_none_is_told_in_a_line():
    result = CliRunner().invoke(main.main, ['data_service', '--port', '99999'])
    assert result.exit_code == 2
    assert '99999 is not in the range 0<=x<=65535' in result.output
