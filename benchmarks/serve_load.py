"""Loads a server with many clients, bad images among them, and checks each answer.

    python benchmarks/serve_load.py --model exported --images 'shapes/val/*.jpg'

Starts `tfod serve` as a process of its own. Each client sends its next request when it has the
answer to the last: image files, base64, tensors of TensorFlow Serving, and, for one request in ten,
a file that is no image, is cut off, says it has billions of pixels, or is larger than is allowed.
Each answer is compared with the detections that the model gives in this process for the image
alone. Exits with 1 if an answer is lost or wrong. At last SIGTERM is sent while requests are under
way, whose answers must all come.
"""

import base64
import dataclasses
import glob
import http.client
import json
import os
import pathlib
import platform
import queue
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter

import click
import numpy as np
import psutil

import object_detection

_BOUNDARY = 'a-boundary-that-no-image-contains'
_MEGABYTE = 1e6
# Scores of another batch size differ by rounding. Boxes are in pixels.
_SCORE, _PIXELS, _LOWEST = 1e-3, 0.05, 0.05


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request, and what its answer must be.

    Attributes:
      kind: for the table.
      path, body, content_type: of the request.
      status: that is expected.
      image: index of the image whose detections are expected.
    """

    kind: str
    path: str
    body: bytes
    content_type: str
    status: int = 200
    image: int | None = None


@click.command(help=__doc__)
@click.option('--model', required=True)
@click.option('--images', required=True, help='Pattern of image files.')
@click.option('--requests', 'count', default=2000, show_default=True)
@click.option('--clients', default=16, show_default=True)
@click.option('--max_images', default=40, show_default=True, help='Different images.')
@click.option('--output', default='', help='JSON file for the figures.')
def main(model: str, images: str, count: int, clients: int, max_images: int, output: str) -> None:
    paths = [pathlib.Path(path) for path in sorted(glob.glob(images))[:max_images]]
    files = [path.read_bytes() for path in paths]
    pixels = [object_detection.read_image(path) for path in paths]
    detector = object_detection.load(model)
    expected = [_numpy(detector(image)) for image in pixels]
    direct = _measure_direct(detector, paths)
    requests = make_requests(files, pixels, count)
    server, port = start_server(model)
    process = psutil.Process(server.pid)
    try:
        _run(port, requests[: clients * 8], clients, expected, pixels)  # the first calls are slow
        memory = [process.memory_info().rss]
        figures = _run(
            port, requests, clients, expected, pixels, lambda: memory.append(_rss(process))
        )
        figures |= {'rss_mb': [round(each / _MEGABYTE, 1) for each in memory]}
        figures |= {'direct_images_per_second': direct, 'cpu': _cpu()}
        figures['after_sigterm'] = _stop_under_load(server, port, requests, expected, pixels)
    finally:
        server.kill()
        server.wait()
    text = json.dumps(figures, indent=1)
    click.echo(text)
    if output:
        pathlib.Path(output).write_text(text + '\n')
    if figures['lost'] or figures['wrong'] or figures['after_sigterm']['lost']:
        sys.exit(1)


def make_requests(files: list[bytes], pixels: list[np.ndarray], count: int) -> list[Sent]:
    """Returns requests in a fixed order; each tenth is a bad one."""
    rng = np.random.default_rng(0)
    bad = _bad_requests(files[0])
    made = []
    for i in range(count):
        image = int(rng.integers(len(files)))
        if i % 10 == 9:
            made.append(bad[i // 10 % len(bad)])
        elif i % 10 == 3:
            body = json.dumps({'images': [base64.b64encode(files[image]).decode()]}).encode()
            made.append(Sent('base64', '/predict', body, 'application/json', image=image))
        elif i % 10 == 6:
            body = json.dumps({'instances': [pixels[image].tolist()]}).encode()
            path = '/v1/models/model:predict'
            made.append(Sent('tensors', path, body, 'application/json', image=image))
        else:
            made.append(_form('file', files[image], image=image))
    return made


def _bad_requests(file: bytes) -> list[Sent]:
    return [
        _form('text', b'this is no image', status=422),
        _form('cut off', file[: len(file) // 2], status=422),
        _form('bomb', _bomb(), status=413),
        _form('large body', bytes(33_000_000), status=413),
        Sent('bad JSON', '/predict', b'{"images": [', 'application/json', 422),
        Sent('ragged', '/v1/models/model:predict', b'{"instances": [[[1], [1, 2]]]}', '', 400),
        Sent('no model', '/v1/models/other:predict', b'{"instances": []}', '', 404),
    ]


def _form(kind: str, file: bytes, status: int = 200, image: int | None = None) -> Sent:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n'
    body = head.encode() + b'\r\n' + file + f'\r\n--{_BOUNDARY}--\r\n'.encode()
    content = f'multipart/form-data; boundary={_BOUNDARY}'
    return Sent(kind, '/predict', body, content, status, image)


def _bomb() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack('>I', zlib.crc32(kind + data))
        return struct.pack('>I', len(data)) + kind + data + checksum

    header = struct.pack('>IIBBBBB', 60_000, 60_000, 8, 2, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(bytes(99)))


def start_server(model: str) -> tuple[subprocess.Popen, int]:
    """Starts `tfod serve` on a free port; returns when it listens with the model loaded."""
    command = [sys.executable, '-m', 'object_detection.cli.main', 'serve', model, '--port', '0']
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {'PYTHONUNBUFFERED': '1'}
    )
    for line in server.stdout:
        if found := re.search(r'serving .* at http://[^:]*:(\d+)/', line):
            return server, int(found[1])
    raise SystemExit('the server did not start')


def _run(port, requests, clients, expected, pixels, sample=lambda: None) -> dict:
    """Sends all requests by several clients; returns counts, times and rates."""
    waiting, results = queue.SimpleQueue(), []
    for request in requests:
        waiting.put(request)
    threads = [
        threading.Thread(target=_client, args=(port, waiting, results)) for _ in range(clients)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        sample()
    # Clients end within the second before.
    seconds = max(result[4] for result in results) - start
    return _figures(results, len(requests), seconds, expected, pixels)


def _client(port: int, waiting: queue.SimpleQueue, results: list) -> None:
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    while True:
        try:
            request = waiting.get_nowait()
        except queue.Empty:
            connection.close()
            return
        start = time.perf_counter()
        try:
            headers = {'Content-Type': request.content_type}
            connection.request('POST', request.path, request.body, headers)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, repr(error).encode()
            connection.close()
        end = time.perf_counter()
        results.append((request, status, body, end - start, end))


def _figures(results, count, seconds, expected, pixels) -> dict:
    problems = []
    for request, status, body, *_ in results:
        problem = _problem(request, status, body, expected, pixels)
        if problem:
            problems.append(f'{request.kind}: {problem}')
    lost = count - sum(status != 0 for _, status, *_ in results)
    times = np.array([result[3] for result in results if result[0].image is not None]) * 1000
    return {
        'requests': count,
        'answered': dict(Counter(f'{r.kind} {status}' for r, status, *_ in results)),
        'lost': lost,
        'wrong': len(problems) - lost,
        'problems': problems[:5],
        'seconds': round(seconds, 2),
        'requests_per_second': round(count / seconds, 1),
        'ms_of_images': {f'p{p}': round(float(np.percentile(times, p)), 1) for p in (50, 90, 99)},
        'ms_max': round(float(times.max()), 1),
    }


def _problem(request: Sent, status: int, body: bytes, expected, pixels) -> str:
    """Returns what is wrong with an answer; '' if nothing is."""
    if status != request.status:
        return f'status {status}, expected {request.status}: {body[:200]!r}'
    value = json.loads(body)
    if request.image is None:
        return '' if set(value) == {'error'} else 'no error in the body'
    wanted = expected[request.image]
    (found,) = value['predictions']
    scores, boxes = wanted['detection_scores'], wanted['detection_boxes']
    if request.kind == 'tensors':
        if not np.allclose(found['detection_scores'], scores, atol=_SCORE):
            return 'other scores'
        rows = scores > _LOWEST
        same = np.abs(np.array(found['detection_boxes']) - boxes)[rows]
        return '' if same.max(initial=0) < 1e-3 else 'other boxes'
    return _differs(found['detections'], wanted, pixels[request.image].shape[:2])


def _differs(found: list[dict], wanted: dict, size: tuple[int, int]) -> str:
    count = int(wanted['num_detections'])
    if len(found) != count:
        return f'{len(found)} detections, expected {count}'
    scores = wanted['detection_scores'][:count]
    rows = scores > _LOWEST
    boxes = wanted['detection_boxes'][:count] * [*size, *size]
    boxes = np.stack([boxes[:, 1], boxes[:, 0], boxes[:, 3], boxes[:, 2]], 1)
    boxes[:, 2:] -= boxes[:, :2]
    given = np.array([each['bbox'] for each in found]).reshape(-1, 4)
    if not np.allclose([each['score'] for each in found], scores, atol=_SCORE):
        return 'other scores'
    classes = np.array([each['category_id'] for each in found])
    if (classes != wanted['detection_classes'][:count])[rows].any():
        return 'other classes'
    return '' if np.abs(given - boxes)[rows].max(initial=0) < _PIXELS else 'other boxes'


def _stop_under_load(server, port, requests, expected, pixels) -> dict:
    """Sends SIGTERM while 16 requests are under way; all must be answered."""
    results = []
    good = [request for request in requests if request.kind == 'file'][:16]
    connections = []
    for request in good:
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
        connection.request(
            'POST', request.path, request.body, {'Content-Type': request.content_type}
        )
        connections.append((request, connection))
    # What the server has not accepted yet may be refused: it has, when the first answer is there.
    request, connection = connections[0]
    first = connection.getresponse()
    server.send_signal(signal.SIGTERM)
    results.append((request, first.status, first.read()))
    for request, connection in connections[1:]:
        try:
            answer = connection.getresponse()
            results.append((request, answer.status, answer.read()))
        except (OSError, http.client.HTTPException) as error:
            results.append((request, 0, repr(error).encode()))
    problems = [p for p in (_problem(*result, expected, pixels) for result in results) if p]
    return {'sent': len(good), 'lost': len(problems), 'exit_status': server.wait(60)}


def _measure_direct(detector, paths: list[pathlib.Path], seconds: float = 5.0) -> float:
    """Returns images per second of calls one after another, each with the reading of its file."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        _numpy(detector(object_detection.read_image(paths[count % len(paths)])))
        count += 1
    return round(count / (time.perf_counter() - start), 1)


def _numpy(outputs) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in outputs.items()}


def _rss(process: psutil.Process) -> int:
    return process.memory_info().rss


def _cpu() -> str:
    text = pathlib.Path('/proc/cpuinfo').read_text() if os.path.exists('/proc/cpuinfo') else ''
    found = re.search(r'model name\s*: (.*)', text)
    return f'{found[1] if found else platform.processor()}, {os.cpu_count()} CPUs'


if __name__ == '__main__':
    main()
