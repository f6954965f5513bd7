"""The table of model formats besides SavedModels; loads neither TensorFlow nor a runtime.

To add a format: a module with the three functions of `FormatModule`, and a row of `EXPORT_FORMATS`.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from object_detection.errors import UserError, format_list
from object_detection.registry import Registry
from object_detection.runtime.description import ModelDescription, path_beside, read_beside
from object_detection.system import extras

if TYPE_CHECKING:
    from object_detection.export.formats.source import ExportSource, FormatOptions
    from object_detection.runtime.file_detector import FileRuntime

SAVED_MODEL = 'saved_model'
# The numbers of a file, the default first.
FLOAT32, FLOAT16, DYNAMIC, INT8 = 'float32', 'float16', 'dynamic', 'int8'
QUANTIZATIONS = (FLOAT32, FLOAT16, DYNAMIC, INT8)
# What runs the model of a Triton repository, the default first.
TRITON_BACKENDS = ('onnx', 'saved_model')


class FormatModule(Protocol):
    """The functions that the module of a format has."""

    def check(self, source: 'ExportSource', options: 'FormatOptions') -> None:
        """Raises UserError if the format cannot express the model.

        It is called before anything is written. The message begins with '--format NAME:', says
        what cannot be expressed and what to use.
        """

    def write(
        self, source: 'ExportSource', path: pathlib.Path, options: 'FormatOptions'
    ) -> ModelDescription:
        """Writes the file `path`, in an empty scratch folder that exists.

        Further files of the format go beside it. The caller writes the returned description beside
        it, verifies it and moves all files to the output folder.
        """

    def load(self, path: pathlib.Path, description: ModelDescription | None) -> 'FileRuntime':
        """Loads what `write` wrote.

        Args:
          path: the file; untrusted.
          description: what the file beside says; None without one, for which formats that hold a
            description inside take that one.

        Raises:
          UserError: if the file cannot be read, or there is no description.
        """


@dataclasses.dataclass(frozen=True)
class Format:
    """A row of the table.

    Attributes:
      file_name: the file within the output folder of an export. Its suffix is that of files of the
        format.
      module: returns the module; imports it when the format is used, and not before.
      write_packages, load_packages: names of the modules that writing and loading need besides
        this toolkit's requirements.
      extra: the optional requirements of this toolkit that install them.
      options: the fields of `FormatOptions` that writing reads.
    """

    file_name: str
    module: Callable[[], FormatModule]
    write_packages: tuple[str, ...] = ()
    load_packages: tuple[str, ...] = ()
    extra: str = ''
    options: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        return pathlib.PurePath(self.file_name).suffix


def _onnx() -> FormatModule:
    from object_detection.export.formats import onnx_file

    return onnx_file


def _openvino() -> FormatModule:
    from object_detection.export.formats import openvino_file

    return openvino_file


def _tflite() -> FormatModule:
    from object_detection.export.formats import tflite

    return tflite


def _stablehlo() -> FormatModule:
    from object_detection.export.formats import stablehlo

    return stablehlo


def _triton() -> FormatModule:
    from object_detection.export.formats import triton

    return triton


EXPORT_FORMATS: Registry[Format] = Registry(
    'export format',
    {
        'onnx': Format(
            file_name='model.onnx',
            module=_onnx,
            write_packages=('tf2onnx', 'onnx'),
            load_packages=('onnxruntime',),
            extra='onnx',
        ),
        'openvino': Format(
            file_name='model.xml',
            module=_openvino,
            write_packages=('openvino',),
            load_packages=('openvino',),
            extra='openvino',
        ),
        'stablehlo': Format(
            file_name='stablehlo/model.mlirbc', module=_stablehlo, options=('batch_size',)
        ),
        'tflite': Format(
            file_name='model.tflite',
            module=_tflite,
            options=('quantization', 'calibration'),
        ),
        'triton': Format(
            file_name='triton/detector/config.pbtxt',
            module=_triton,
            options=('batch_size', 'triton_backend'),
        ),
    },
    Format,
)


def parse_names(values: Iterable[str]) -> list[str]:
    """Returns the formats that `--format` names, each once, in order.

    Args:
      values: names, or lists of names that commas separate.

    Raises:
      UserError: for an unknown name, or none at all.
    """
    names = [name.strip() for value in values for name in value.split(',')]
    known = (SAVED_MODEL, *EXPORT_FORMATS)
    for name in names:
        if name not in known:
            raise UserError(f'--format: expected some of {", ".join(known)}. Received: {name!r}.')
    return list(dict.fromkeys(names))


def find(path: pathlib.Path) -> pathlib.Path | None:
    """Returns the model file that `path` is, or that the folder `path` holds.

    A folder may be the output of an export or the folder of the file itself, and the file has its
    description beside it. None if there is no model file.

    Raises:
      UserError: if the folder holds several.
    """
    suffixes = {each.suffix for each in EXPORT_FORMATS.values()}
    if path.is_file():
        return path if path.suffix in suffixes else None
    folders = {
        path,
        *(path / pathlib.PurePath(f.file_name).parent for f in EXPORT_FORMATS.values()),
    }
    found = sorted(
        file
        for folder in folders
        if folder.is_dir()
        for file in folder.iterdir()
        # Other programs write files of these suffixes, such as .xml, into folders of data.
        if file.suffix in suffixes and path_beside(file).is_file()
    )
    if len(found) > 1:
        raise UserError(
            f'{path}: expected a folder with one model file. '
            f'Received: {format_list(file.relative_to(path) for file in found)}; name one of them.'
        )
    return found[0] if found else None


def load(path: pathlib.Path) -> 'FileRuntime':
    """Loads a model file that `find` found.

    Raises:
      UserError: if it cannot be read, its description is absent or wrong, or a package is not
        installed.
    """
    ((name, row),) = [item for item in EXPORT_FORMATS.items() if item[1].suffix == path.suffix]
    extras.check_packages(str(path), row.load_packages, row.extra)
    return row.module().load(path, read_beside(path, name))


def no_description(path: pathlib.Path) -> UserError:
    """Returns the error of a file without a description, neither beside it nor inside."""
    return UserError(
        f'{path}: expected a model that `tfod export` wrote, with its description '
        f'{path_beside(path).name} in the same folder. Received: no such file.'
    )
