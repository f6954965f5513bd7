import json

from object_detection.data import shard_names
from tests import rows


@rows.parametrize(
    ('image_id', 'text'),
    [
        (139, '139'),
        (-5, '-5'),
        (1.5, '1.5'),
        ('139', '"139"'),
        ('-5', '"-5"'),
        ('000123', '000123'),
        ('1e5', '1e5'),
        ('a/b.jpg', 'a/b.jpg'),
        ('Bär', 'Bär'),
        ('true', 'true'),
        ('NaN', 'NaN'),
        ('"quoted"', '"\\"quoted\\""'),
        ('', ''),
        ('9' * 5000, '9' * 5000),
    ],
)
def test_an_id_keeps_its_json_form(image_id, text):
    assert shard_names.to_text(image_id) == text
    again = shard_names.from_text(text)
    assert again == image_id
    assert type(again) is type(image_id)
    assert json.loads(json.dumps(again)) == image_id
