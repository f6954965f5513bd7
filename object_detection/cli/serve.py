"""`tfod serve`: a page and an API over HTTP for a model."""

import errno
import ipaddress
import signal
import socket
from collections.abc import Callable

import click

from object_detection.errors import UserError
from object_detection.serving.limits import ServeOptions
from object_detection.system import extras, tensorflow_setup

_PACKAGES = ('fastapi', 'uvicorn', 'multipart', 'prometheus_client')
_DEFAULTS = ServeOptions()
# Field of `ServeOptions` -> what --help says of its flag.
_FLAGS = {
    'model_name': 'NAME in /v1/models/NAME:predict.',
    'model_version': None,
    'max_batch_size': 'Most images computed at a time.',
    'max_wait_ms': 'Longest wait of an image for others to be computed with.',
    'max_queue': 'Most images, and requests, held; more get status 503.',
    'max_connections': 'Most connections; the longest idle one is closed for a new one.',
    'max_images': 'Most of a request.',
    'max_body_mb': 'Largest body.',
    'max_megapixels': 'Largest image, by its header.',
    'max_memory_mb': 'Most of bodies, decoded images and answers held.',
    'timeout_s': 'Longest time for receiving a header, then a body, and then for the answer.',
    'drain_s': 'Seconds after SIGTERM in which /readyz is 503 and requests are still answered.',
}


def _flags_of_limits(function: Callable) -> Callable:
    """Decorates the command with the flags for the fields of `ServeOptions`."""
    for name, text in reversed(_FLAGS.items()):
        default = getattr(_DEFAULTS, name)
        option = click.option(f'--{name}', default=default, show_default=True, help=text)
        function = option(function)
    return function


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
@_flags_of_limits
def command(model: str, host: str, port: int, label_map: str, **options: str | float) -> None:
    """Serves MODEL over HTTP: an export, a file of one, a model_dir or an unpacked archive.

    The page at / takes an image and shows boxes and masks. POST /predict takes image files and
    returns COCO results; /v1/models/NAME:predict is the REST API of TensorFlow Serving. SIGTERM
    and ctrl-C end the server when all accepted requests are answered.
    """
    limits = ServeOptions(**options)
    extras.check_packages('tfod serve', _PACKAGES, 'serve')
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
