"""Boxes with further fields as NumPy arrays, under the name of the reference."""

import numpy as np

from object_detection.errors import UserError, expected
from object_detection.utils import missing

__getattr__ = missing(__name__, {})


class BoxList:
    """Boxes, float [n, 4] with rows [ymin, xmin, ymax, xmax], and fields [n, ...] by name."""

    def __init__(self, data: np.ndarray):
        """Raises UserError if `data` is not float [n, 4] or a box ends before it begins."""
        is_array = isinstance(data, np.ndarray) and data.ndim == 2 and data.shape[1] == 4
        if not is_array or not np.issubdtype(data.dtype, np.floating):
            raise UserError(f'BoxList: expected a NumPy array float [n, 4]. Received: {data!r}.')
        if (data[:, :2] > data[:, 2:]).any():
            raise UserError(
                'BoxList: expected rows [ymin, xmin, ymax, xmax] with ymin <= ymax and '
                f'xmin <= xmax. Received: {data[(data[:, :2] > data[:, 2:]).any(axis=1)][0]}.'
            )
        self.data = {'boxes': data}

    def num_boxes(self) -> int:
        """Returns n."""
        return len(self.data['boxes'])

    def get(self) -> np.ndarray:
        """Returns the boxes."""
        return self.data['boxes']

    def get_coordinates(self) -> tuple[np.ndarray, ...]:
        """Returns ymin, xmin, ymax and xmax, each [n]."""
        return tuple(self.data['boxes'].T)

    def get_extra_fields(self) -> list[str]:
        """Returns the names of the fields other than 'boxes'."""
        return [name for name in self.data if name != 'boxes']

    def has_field(self, field: str) -> bool:
        """Whether there is a field of this name."""
        return field in self.data

    def add_field(self, field: str, field_data: np.ndarray) -> None:
        """Adds a field [n, ...].

        Raises:
          UserError: if there is one of this name, or it has another number of rows.
        """
        if self.has_field(field):
            raise UserError(f'BoxList: expected a new name. Received: {field!r}, which exists.')
        if field_data.ndim < 1 or len(field_data) != self.num_boxes():
            raise expected(
                'BoxList', f'{self.num_boxes()} rows of {field!r}', f'shape {field_data.shape}'
            )
        self.data[field] = field_data

    def get_field(self, field: str) -> np.ndarray:
        """Returns the rows of a field.

        Raises:
          UserError: if there is no such field.
        """
        if not self.has_field(field):
            raise UserError(f'BoxList: expected one of {list(self.data)}. Received: {field!r}.')
        return self.data[field]
