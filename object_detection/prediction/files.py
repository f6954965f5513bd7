"""Runs a predictor on images and videos, and writes what it finds to files."""

import collections
import contextlib
import dataclasses
import datetime
import itertools
import os
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.data import label_map
from object_detection.errors import UserError, expected
from object_detection.prediction import memory as memories
from object_detection.prediction import sources, tracking, writers
from object_detection.prediction.memory import Memory
from object_detection.prediction.output import Item, Output
from object_detection.prediction.prediction import of_path
from object_detection.prediction.predictor import Predictor
from object_detection.prediction.sources import Frame
from object_detection.system import folder_lock, json_lists


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """What is written.

    Attributes:
      formats: names of `writers.WRITERS`.
      score_threshold: lowest score of what is drawn and written; COCO results have every object.
      max_boxes: maximum number of objects drawn in a picture.
      limit: stops after so many images and frames; 0 takes all.
      should_stop: called before each image; True ends the run, which keeps what was found.
      track: whether objects are tracked through the frames of each video, and through the images of
        each folder; then all files but COCO results have the objects of tracks alone, which begin
        with `score_threshold`.
    """

    formats: Sequence[str] = writers.DEFAULT
    score_threshold: float = 0.5
    max_boxes: int = 100
    limit: int = 0
    should_stop: Callable[[], bool] = lambda: False
    track: bool = False


class PredictionSummary(NamedTuple):
    """The result of `predict_files`.

    Attributes:
      images, detections, drawn: numbers of images and frames, of detections, and of those that were
        drawn or would be.
      problems: one sentence for each file that was left out.
      precision: what the model computes in, or was quantized to; None if it does not store it.
    """

    images: int
    detections: int
    drawn: int
    problems: list[str]
    precision: str | None


class _Named(NamedTuple):
    """A frame with its number and the names of its files."""

    frame: Frame
    image_id: int
    name: str
    clip_name: str


class _Sequence(NamedTuple):
    """The frames of a video, or images of a folder: the name of their files, and the tracker."""

    name: str
    tracker: tracking.Tracker


def predict_files(
    predictor: Predictor,
    inputs: Sequence[str | os.PathLike],
    output_directory: str | os.PathLike,
    options: OutputOptions | None = None,
    *,
    memory: Memory | None = None,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> PredictionSummary:
    """Writes what a predictor finds in images and videos; `images.json` lists the images.

    `images.json` lists, for each image, `id` (the `image_id` of `detections.json`), `file_name`,
    `picture` and further `files`; for a frame of a video, `frame` and `seconds` too, and `page`,
    from 1, for a further page of a TIFF file. A file whose name is a number gets that id. All
    other files, and files whose number an earlier file has (1.jpg, 01.png), get the lowest unused
    numbers, in the order of `inputs`; frames and further pages get the numbers after those of all
    files. Files of an image are called as it is, or NAME_2 and so on if names are equal (a.jpg,
    a.png); frames are called NAME_000000 and so on, and further pages NAME_000001 and so on.

    Lists are written image by image, under names that end in `.partial` until they are complete.

    Args:
      predictor: finds the objects; its `score_threshold` is not used.
      inputs: image files, and videos, cameras and streams as `sources.read` takes them.
      output_directory: created if necessary; files of an earlier run are replaced, and those of
        single images that only an earlier `images.json` lists are deleted.
      options: what is written.
      memory: the memory of the camera that took all images, which are looked at in order of time.
      progress: called with the number of finished images and the total number, None if it is not
        known, before each image and at the end.

    Returns:
      Counts, and the files that could not be read.

    Raises:
      UserError: if the output directory holds one of the inputs, or another process writes into
        it; if a package for videos is not installed; if there are videos for a memory.
    """
    options = options or OutputOptions()
    names = [os.fspath(each) for each in inputs]
    times = {} if memory is None else _in_order_of_time(names)
    names = list(times) or names
    output = pathlib.Path(output_directory)
    _check_output_folder(output, [pathlib.Path(n) for n in names if not sources.is_live(n)])
    sources.check_packages(names)
    if options.track:
        tracking.check_packages('--track')
    elif writers.MOT in options.formats:
        raise expected(f'--output_format {writers.MOT}', '--track with it', 'no --track')
    output.mkdir(parents=True, exist_ok=True)
    run = _Run(predictor, options, memory, times)
    with folder_lock.sole_writer(output):
        earlier = json_lists.read_list(output / json_lists.IMAGES)
        with contextlib.ExitStack() as stack:
            run.open(stack, output)
            frames = run.frames(names, progress)
            while batch := list(itertools.islice(frames, predictor.batch_size)):
                run.write(batch)
        _delete_stale(output, earlier, run.written)
    computed = predictor.precision or predictor.quantization
    return PredictionSummary(run.images.count, run.detections, run.sure, run.problems, computed)


class _Run:
    """A run over all inputs: its open files and its counts."""

    def __init__(
        self,
        predictor: Predictor,
        options: OutputOptions,
        memory: Memory | None,
        times: Mapping[str, datetime.datetime],
    ):
        self._predictor = predictor
        self._options = options
        self._memory = memory
        self._times = times
        self._sequences: dict[tuple[bool, str], _Sequence] = {}
        self.detections = self.sure = 0
        self.problems: list[str] = []
        self.written: set[str] = set()

    def open(self, stack: contextlib.ExitStack, output: pathlib.Path) -> None:
        """Opens the files, which the stack closes."""
        formats = list(dict.fromkeys(self._options.formats))
        target = Output(
            folder=output,
            names=self._predictor.class_names,
            score_threshold=self._options.score_threshold,
            max_boxes=self._options.max_boxes,
            frames=writers.VIDEO not in formats,
            keypoint_names=label_map.keypoint_names(self._predictor.labels),
            model=str(self._predictor.source),
            tracks=self._options.track,
        )
        self._writers = {
            name: stack.enter_context(writers.WRITERS[name](target)) for name in formats
        }
        self.images = stack.enter_context(json_lists.ResultsFile(output / json_lists.IMAGES))

    def frames(
        self, inputs: Sequence[str], progress: Callable[[int, int | None], None]
    ) -> Iterator[_Named]:
        """Yields the pictures of all inputs; notes the inputs that cannot be read."""
        limit, total = self._options.limit, len(inputs)
        if any(map(sources.is_video, inputs)):
            total = None
        elif limit:
            total = min(limit, total)
        self._places = _places(inputs)
        stems = [_stem(each) for each in inputs]
        ids = _image_ids(stems)
        later = itertools.count(max(ids, default=0) + 1)
        done = 0
        for source, image_id, name in zip(inputs, ids, _unique_names(stems), strict=True):
            for frame in self._pictures(source):
                if (limit and done >= limit) or self._options.should_stop():
                    progress(done, total)
                    return
                progress(done, total)
                done += 1
                if frame is None:
                    continue
                if frame.clip is None and not frame.index:
                    yield _Named(frame, image_id, name, '')
                else:
                    yield _Named(frame, next(later), f'{name}_{frame.index:06d}', name)
        progress(done, total)

    def _pictures(self, source: str) -> Iterator[Frame | None]:
        """Yields the pictures of an input; None, and notes why, for what cannot be read."""
        try:
            predictor = self._predictor
            yield from sources.read(
                source,
                predictor.max_pixels,
                predictor.value_range,
                channels=predictor.detector.channels,
                in_parts=predictor.tiling is not None,
            )
        except ValueError as error:
            self.problems.append(str(error))
            yield None

    def write(self, batch: Sequence[_Named]) -> None:
        """Finds the objects of some pictures and writes them."""
        needs_all = writers.COCO in self._options.formats
        threshold = self._options.score_threshold
        lowest = 0.0 if needs_all else threshold
        if self._options.track:
            lowest = min(lowest, tracking.faint(threshold))
        found = self._predictor.predict_batch(
            [each.frame.image for each in batch],
            score_threshold=lowest,
            contexts=None if self._memory is None else [self._see(each.frame) for each in batch],
        )
        for named, prediction in zip(batch, found, strict=True):
            frame = named.frame
            prediction = of_path(prediction, frame.source)
            item = Item(prediction, named.image_id, named.name, frame.clip, named.clip_name)
            if self._options.track:
                item = self._tracked(item, frame)
                sure = item.prediction.take(item.prediction.track_ids > 0)
            else:
                sure = prediction.above(threshold)
            own = {name: write(item, sure) for name, write in self._writers.items()}
            self.detections += len(item.prediction)
            self.sure += min(len(sure), self._options.max_boxes)
            self._list(named, own)

    def _tracked(self, item: Item, frame: Frame) -> Item:
        """Returns an item with the numbers of its objects, and its place in its sequence."""
        is_image = frame.clip is None
        folder = os.path.dirname(os.path.abspath(frame.source)) if is_image else ''
        key = (is_image, folder or item.clip_name)
        if key not in self._sequences:
            taken = [each.name for each in self._sequences.values()]
            name = item.clip_name or os.path.basename(folder) or 'images'
            name = _unique_names([*taken, name])[-1]
            rate = tracking.DEFAULT_RATE if is_image else float(frame.clip.rate)
            tracker = tracking.Tracker(score_threshold=self._options.score_threshold, rate=rate)
            self._sequences[key] = _Sequence(name, tracker)
        own = self._sequences[key]
        number = frame.index + (self._places[frame.source] if is_image else 0)
        tracked = own.tracker.update(item.prediction)
        return dataclasses.replace(item, prediction=tracked, sequence=own.name, number=number)

    def _see(self, frame: Frame) -> dict[str, np.ndarray]:
        """Remembers a picture; returns what the model takes with it."""
        name = pathlib.Path(frame.source).name
        return self._memory.see(frame.image, name, self._times[frame.source])

    def _list(self, named: _Named, own: dict[str, str | None]) -> None:
        """Adds an image and its files to images.json."""
        entry: dict[str, Any] = {'id': named.image_id, 'file_name': named.frame.source}
        if named.frame.clip is not None:
            entry |= {'frame': named.frame.index, 'seconds': named.frame.seconds}
        elif named.frame.index:
            entry['page'] = named.frame.index
        picture = own.pop(writers.PICTURES, None)
        if picture is not None:
            entry['picture'] = picture
        others = [file for file in own.values() if file is not None]
        if others:
            entry['files'] = others
        self.images.add([entry])
        self.written.update(file.casefold() for file in (picture, *others) if file is not None)


def _in_order_of_time(names: Sequence[str]) -> dict[str, datetime.datetime]:
    if others := [name for name in names if sources.is_video(name)]:
        raise UserError(f'Expected image files, whose times are known. Received: {others[0]}.')
    return memories.in_order_of_time(names)


def _delete_stale(output: pathlib.Path, earlier: list[Any], written: Collection[str]) -> None:
    """Deletes files of single images of an earlier run that the new `images.json` does not list."""
    for entry in earlier:
        if not isinstance(entry, dict):
            continue
        others = entry.get('files')
        for name in [entry.get('picture'), *(others if isinstance(others, list) else [])]:
            # Deletes only files that this command writes, and only in this folder.
            is_own = isinstance(name, str) and writers.OWN_FILES.fullmatch(name)
            if is_own and name.casefold() not in written:
                with contextlib.suppress(OSError):
                    (output / name).unlink()


def _stem(source: str) -> str:
    """Returns the name of a source, of which files are named."""
    if not sources.is_live(source):
        return pathlib.PurePath(source).stem
    return ''.join(each if each.isalnum() else '_' for each in source.split('://')[-1])[:80]


def _check_output_folder(output: pathlib.Path, paths: Sequence[pathlib.Path]) -> None:
    """Refuses an output folder in which a picture could overwrite an image."""
    folder = output.resolve()
    for path in paths:
        # Checks the folder of a link and the folder of its target.
        if folder in (path.parent.resolve(), path.resolve().parent):
            raise UserError(
                'predict: the output folder must be another than that of the images, which the '
                f'pictures would overwrite. Received: output {output}, image {path}.'
            )


def _places(sources: Sequence[str]) -> dict[str, int]:
    """Returns the number of each source among those of its folder, also of unreadable ones."""
    counts: collections.Counter[str] = collections.Counter()
    places = {}
    for each in sources:
        folder = os.path.dirname(os.path.abspath(each))
        places[each] = counts[folder]
        counts[folder] += 1
    return places


def _image_ids(stems: Sequence[str]) -> list[int]:
    """Returns a unique number for each name: the name itself if it is a number."""
    own = [int(stem) if stem.isdecimal() else None for stem in stems]
    taken, given = set(own), set()
    free = (number for number in itertools.count(1) if number not in taken)
    ids = []
    for number in own:
        if number is None or number in given:
            number = next(free)
        given.add(number)
        ids.append(number)
    return ids


def _unique_names(stems: Sequence[str]) -> list[str]:
    """Makes names unique by appending '_2', '_3' ... to repeated ones.

    Names that differ only in case count as equal, as they are in some file systems.
    """
    taken, given = {stem.casefold() for stem in stems}, set()
    names = []
    for stem in stems:
        name = stem
        if stem.casefold() in given:
            numbered = (f'{stem}_{number}' for number in itertools.count(2))
            name = next(name for name in numbered if name.casefold() not in taken)
        given.add(name.casefold())
        taken.add(name.casefold())
        names.append(name)
    return names
