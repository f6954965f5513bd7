"""Reads pictures one after another from image files, videos, cameras and streams.

Commands load it to know sources by their names: TensorFlow is imported when an image is read.
"""

import dataclasses
import glob
import pathlib
import re
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from object_detection.data.image_files import MAX_PIXELS
from object_detection.errors import UserError, expected
from object_detection.system import extras

if TYPE_CHECKING:
    from object_detection.resizers.value_range import ValueRange

VIDEO_SUFFIXES = {'.avi', '.m4v', '.mkv', '.mov', '.mp4', '.mpeg', '.mpg', '.webm'}
_IMAGE_SUFFIXES = {'.jpg', '.jpeg', '.jpe', '.jfif', '.png', '.bmp', '.gif', '.webp', '.mpo'}
_IMAGE_SUFFIXES |= {'.tif', '.tiff'}
# Formats that cannot be read; they are also searched in folders, so that they can be reported.
_OTHER_SUFFIXES = {'.heic', '.heif', '.avif', '.jp2', '.jxl'}
_CAMERA = re.compile(r'camera:(\d+)')
# The names of cameras, by the operating system: format and name for FFmpeg.
_CAMERAS = {'linux': ('video4linux2', '/dev/video{}'), 'darwin': ('avfoundation', '{}')}
_FILES_ONLY = {'protocol_whitelist': 'file'}
_DEFAULT_RATE = Fraction(25)


@dataclasses.dataclass(frozen=True)
class Clip:
    """What a video says of itself.

    Attributes:
      source: its path, URL or camera.
      rate: frames in a second.
    """

    source: str
    rate: Fraction


@dataclasses.dataclass(frozen=True)
class Frame:
    """A picture of a source.

    Attributes:
      image: uint8 [H, W, C], RGB, upright; float32 for a model with a range of values. A
        `LargeImage`, of which parts are read.
      source: path, URL or camera.
      clip: the video; None for an image file.
      index: number of the frame in the video, or of the page in a TIFF file, from 0.
      seconds: time of the frame since the start of the video; None if it is not known.
    """

    image: np.ndarray
    source: str
    clip: Clip | None = None
    index: int = 0
    seconds: float | None = None


def is_video(source: str) -> bool:
    """Whether a source is a video file, a camera or a stream, by its name."""
    return is_live(source) or pathlib.PurePath(source).suffix.lower() in VIDEO_SUFFIXES


def is_live(source: str) -> bool:
    """Whether a source is a camera, such as camera:0, or a URL."""
    return '://' in source or _CAMERA.fullmatch(source) is not None


def check_packages(sources: Sequence[str]) -> None:
    """Raises UserError, which names the extra, if there is a video and no package to read it."""
    if any(is_video(source) for source in sources):
        _import_av()


def read(
    source: str,
    max_pixels: int = MAX_PIXELS,
    value_range: 'ValueRange | None' = None,
    *,
    channels: int = 3,
    in_parts: bool = False,
) -> Iterator[Frame]:
    """Yields the picture of an image file, or the pages of a TIFF file, or the frames of a video.

    Args:
      source: path, URL, or camera:NUMBER.
      max_pixels: maximum number of pixels of a picture.
      value_range: that of the model, see `runtime.images.read`; videos have 8 bits.
      channels: that of the model.
      in_parts: whether parts are read of a large TIFF file, see `runtime.images.pages`.

    Raises:
      UserError: if it cannot be opened or decoded, or a picture is too large.
    """
    if not is_video(source):
        from object_detection.runtime import images

        options = {'channels': channels, 'in_parts': in_parts}
        pages = images.pages(source, max_pixels, value_range, **options)
        for index, image in enumerate(pages):
            yield Frame(image, source, index=index)
        return
    av = _import_av()
    try:
        with _open(av, source) as container:
            yield from _frames(source, container, max_pixels)
    except (av.FFmpegError, OSError) as error:
        reason = getattr(error, 'strerror', None) or str(error)
        raise UserError(f'{source}: cannot be decoded as a video: {reason}.') from error


def _frames(source: str, container: Any, max_pixels: int) -> Iterator[Frame]:
    if not container.streams.video:
        raise UserError(f'{source}: expected a video. Received: a file without pictures.')
    stream = container.streams.video[0]
    # Before the first frame is decoded, which allocates its size.
    _check_size(source, stream.codec_context.height, stream.codec_context.width, max_pixels)
    stream.thread_type = 'AUTO'
    clip = Clip(source, stream.average_rate or stream.guessed_rate or _DEFAULT_RATE)
    for index, frame in enumerate(container.decode(stream)):
        _check_size(source, frame.height, frame.width, max_pixels)
        image = np.rot90(frame.to_ndarray(format='rgb24'), frame.rotation // 90)
        yield Frame(np.ascontiguousarray(image), source, clip, index, frame.time)


def _open(av: Any, source: str) -> Any:
    camera = _CAMERA.fullmatch(source)
    if camera is None:
        # A file of an unknown author may name others, on this machine or the network.
        is_url = '://' in source
        return av.open(source) if is_url else av.open(f'file:{source}', options=_FILES_ONLY)
    if sys.platform not in _CAMERAS:
        raise expected(source, f'a camera on {" or ".join(_CAMERAS)}', sys.platform)
    kind, name = _CAMERAS[sys.platform]
    return av.open(name.format(camera[1]), format=kind)


def _check_size(source: str, height: int, width: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        raise expected(source, f'at most {max_pixels} pixels', f'{height} high and {width} wide')


def _import_av() -> Any:
    try:
        import av
    except ImportError as error:
        raise UserError(
            f'Videos and cameras need the package av ({error}): {extras.install_command("video")}.'
        ) from error
    return av


class VideoFile:
    """Writes pictures of one size as a video (MP4), to a draft that the caller renames.

    Args:
      path: path of the draft.
      rate: frames in a second.
    """

    def __init__(self, path: str, rate: Fraction):
        self._av = _import_av()
        self._container = self._av.open(path, mode='w', format='mp4')
        self._rate = rate
        self._stream: Any = None

    def add(self, picture: np.ndarray) -> None:
        """Appends a picture, uint8 [H, W, 3]; those of another size than the first are resized."""
        if self._stream is None:
            self._stream = self._start(*picture.shape[:2])
        frame = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format='rgb24')
        size = {'width': self._stream.width, 'height': self._stream.height}
        frame = frame.reformat(**size, format='yuv420p')
        self._container.mux(self._stream.encode(frame))

    def close(self) -> None:
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        self._container.close()

    def _start(self, height: int, width: int) -> Any:
        codecs = ('libx264', 'libopenh264', 'mpeg4')
        codec = next(each for each in codecs if each in self._av.codecs_available)
        stream = self._container.add_stream(codec, rate=self._rate.limit_denominator(1 << 15))
        # Colours are stored at half the size.
        stream.width, stream.height = max(width // 2, 1) * 2, max(height // 2, 1) * 2
        stream.pix_fmt = 'yuv420p'
        stream.bit_rate = max(1_000_000, round(0.15 * height * width * float(self._rate)))
        return stream


def find_images(
    inputs: tuple[str, ...], *, readable: bool = False, videos: bool = False, flag: str = '--input'
) -> list[pathlib.Path]:
    """Lists the images of files, folders and patterns, sorted for each input.

    Args:
      inputs: paths and patterns.
      readable: whether images in a folder whose format cannot be read are left out.
      videos: whether videos in a folder are listed, too.
      flag: the flag of the inputs, for errors.

    Raises:
      ValueError: if an input does not exist or a folder holds no image.
    """
    known = _IMAGE_SUFFIXES | (VIDEO_SUFFIXES if videos else set())
    paths: list[pathlib.Path] = []
    for text in inputs:
        path = pathlib.Path(text)
        if path.is_dir():
            paths += _in_folder(path, f'{flag} {text}', readable, known)
        elif path.is_file():
            paths.append(path)
        elif found := sorted(glob.glob(text, recursive=True)):
            paths += [path for path in map(pathlib.Path, found) if not path.is_dir()]
        else:
            raise UserError(f'{flag} {text}: no such file or folder.')
    return paths


def _in_folder(
    folder: pathlib.Path, where: str, readable: bool, suffixes: set[str]
) -> list[pathlib.Path]:
    listed = suffixes | _OTHER_SUFFIXES
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in listed)
    known = [path for path in found if path.suffix.lower() in suffixes]
    if not known:
        others = sorted({path.suffix for path in found})
        raise UserError(
            f'{where}: the folder holds no image ({", ".join(sorted(suffixes))})'
            + (f', only files that cannot be read: {", ".join(others)}.' if others else '.')
        )
    return known if readable else found
