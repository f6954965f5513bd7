import importlib.util
import re
import socket

from click.testing import CliRunner

from object_detection.cli import serve
from object_detection.errors import UserError


def test_a_package_that_is_missing_is_named_with_its_command(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == 'uvicorn' else find(name)
    )
    error = CliRunner().invoke(serve.command, ['model']).exception
    assert isinstance(error, UserError)
    assert re.search(r'package uvicorn, .* pip install .*fastapi', str(error))


def test_a_port_that_is_taken_is_an_error_before_the_model_is_loaded(monkeypatch):
    monkeypatch.setattr(serve.extras, 'check_packages', lambda *_: None)
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = taken.getsockname()[1]
        error = CliRunner().invoke(serve.command, ['model', '--port', str(port)]).exception
    assert isinstance(error, UserError)
    assert f'--host 127.0.0.1 --port {port}: cannot be listened on' in str(error)
    assert '--port 0 takes a free one' in str(error)


def test_options_are_checked_first():
    error = CliRunner().invoke(serve.command, ['model', '--timeout_s', '0']).exception
    assert '--timeout_s: expected 0.01 to 3600. Received: 0' in str(error)


def test_other_addresses_than_this_machine_give_a_warning(capsys):
    for host in ('127.0.0.1', '127.1.2.3', '::1', 'localhost'):
        serve._warn_if_open(host)
    assert capsys.readouterr().err == ''
    for host in ('0.0.0.0', '::', '192.168.0.1', 'example.org'):
        serve._warn_if_open(host)
    assert capsys.readouterr().err.count('asks no password') == 4


def test_a_limit_of_descriptors_that_lowers_that_of_connections_is_named(capsys):
    options = serve.ServeOptions(max_connections=700)
    serve._warn_if_fewer(700, options)
    assert capsys.readouterr().err == ''
    serve._warn_if_fewer(60, options)
    assert 'at most 60 connections, not --max_connections 700' in capsys.readouterr().err
