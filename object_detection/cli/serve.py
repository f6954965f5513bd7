"""`tfod serve`: a page and an API over HTTP for a model."""

import errno
import importlib.util
import ipaddress
import signal
import socket

import click

from object_detection.errors import UserError, format_list
from object_detection.serving.limits import ServeOptions
from object_detection.system import extras, tensorflow_setup

_PACKAGES = ('fastapi', 'uvicorn', 'multipart', 'prometheus_client')
_DEFAULTS = ServeOptions()


@click.command(name='serve')
@click.argument('model')
@click.option(
    '--host',
    default='127.0.0.1',
    show_default=True,
    help='Address to listen on; 0.0.0.0 serves other machines too, without any password.',
)
@click.option(
    '--port',
    type=click.IntRange(0, 65535),
    default=8501,
    show_default=True,
    help='Port; 0 takes a free one.',
)
@click.option('--label_map', default='', help="Label map; the model's own names if not given.")
@click.option(
    '--model_name',
    default=_DEFAULTS.model_name,
    show_default=True,
    help='NAME in /v1/models/NAME:predict.',
)
@click.option('--model_version', default=_DEFAULTS.model_version, show_default=True)
@click.option(
    '--max_batch_size',
    default=_DEFAULTS.max_batch_size,
    show_default=True,
    help='Most images computed at a time.',
)
@click.option(
    '--max_wait_ms',
    default=_DEFAULTS.max_wait_ms,
    show_default=True,
    help='Longest wait of an image for others to be computed with.',
)
@click.option(
    '--max_queue',
    default=_DEFAULTS.max_queue,
    show_default=True,
    help='Most images, and requests, held; more get status 503.',
)
@click.option(
    '--max_connections',
    default=_DEFAULTS.max_connections,
    show_default=True,
    help='Most connections; the longest idle one is closed for a new one.',
)
@click.option(
    '--max_images', default=_DEFAULTS.max_images, show_default=True, help='Most of a request.'
)
@click.option(
    '--max_body_mb', default=_DEFAULTS.max_body_mb, show_default=True, help='Largest body.'
)
@click.option(
    '--max_megapixels',
    default=_DEFAULTS.max_megapixels,
    show_default=True,
    help='Largest image, by its header.',
)
@click.option(
    '--max_memory_mb',
    default=_DEFAULTS.max_memory_mb,
    show_default=True,
    help='Most of bodies, decoded images and answers held.',
)
@click.option(
    '--timeout_s',
    default=_DEFAULTS.timeout_s,
    show_default=True,
    help='Longest time for receiving a header, then a body, and then for the answer.',
)
@click.option(
    '--drain_s',
    default=_DEFAULTS.drain_s,
    show_default=True,
    help='Seconds after SIGTERM in which /readyz is 503 and requests are still answered.',
)
def command(model: str, host: str, port: int, label_map: str, **options: str | float) -> None:
    """Serves MODEL over HTTP: an export, a file of one, a model_dir or an unpacked archive.

    The page at / takes an image and shows boxes and masks. POST /predict takes image files and
    returns COCO results; /v1/models/NAME:predict is the REST API of TensorFlow Serving. SIGTERM
    and ctrl-C end the server when all accepted requests are answered.
    """
    limits = ServeOptions(**options)
    check_packages()
    with _listen(host, port) as listener:
        tensorflow_setup.keep_freed_memory()
        tensorflow_setup.assume_constant_weights()
        tensorflow_setup.import_tensorflow(keras_pictures=False)
        from object_detection.serving.model import LoadedModel

        click.echo(f'loading {model}')
        loaded = LoadedModel(model, **({'label_map': label_map} if label_map else {}))
        address = f'[{host}]' if ':' in host else host
        click.echo(f'serving {loaded.source} at http://{address}:{listener.getsockname()[1]}/')
        _warn_if_open(host)
        _run(loaded, limits, listener)
    click.echo('stopped; all accepted requests are answered')


def check_packages() -> None:
    """Raises UserError, which names the extra, unless the packages of a server are installed."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f'tfod serve: needs the Python package {format_list(missing)}, which is not installed: '
            f'{extras.install_command("serve")}.'
        )


def _run(model: object, limits: ServeOptions, listener: socket.socket) -> None:
    from object_detection.serving import connections
    from object_detection.serving.app import create_app

    _warn_if_fewer(connections.connection_limit(limits.max_connections), limits)
    # uvicorn repeats the signal when it has stopped; the process then ends as usual.
    before = {each: signal.signal(each, lambda *_: None) for each in _SIGNALS}
    try:
        server = connections.make_server(create_app(model, limits), limits)
        server.run(sockets=[listener])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _listen(host: str, port: int) -> socket.socket:
    """Returns the socket, which is taken before the model is loaded."""
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        advice = ' --port 0 takes a free one.' if error.errno == errno.EADDRINUSE else ''
        raise UserError(
            f'--host {host} --port {port}: cannot be listened on: {reason}.{advice}'
        ) from error


def _warn_if_fewer(limit: int, limits: ServeOptions) -> None:
    if limit < limits.max_connections:
        click.echo(
            f'warning: at most {limit} connections, not --max_connections '
            f'{limits.max_connections}: '
            'ulimit -n allows no more',
            err=True,
        )


def _warn_if_open(host: str) -> None:
    try:
        is_local = host == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = False
    if not is_local:
        click.echo('warning: other machines can use this server, which asks no password', err=True)
