"""Colours for text protos, which Pygments has no lexer for."""

from typing import ClassVar

import pygments.lexers
from pygments.lexer import RegexLexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text

# Pygments reads it.
__all__ = ['TextProtoLexer']


class TextProtoLexer(RegexLexer):
    """Fields, values and comments of configs and label maps."""

    name = 'Text proto'
    aliases: ClassVar = ['textproto']
    tokens: ClassVar = {
        'root': [
            (r'#.*', Comment.Single),
            (r'"[^"\n]*"|\'[^\'\n]*\'', String),
            (r'\w+(?=\s*:)', Name.Attribute),
            (r'\w+(?=\s*\{)', Name.Tag),
            (r'-?\d[\w.+-]*', Number),
            (r'(?:true|false|[A-Z]\w*)\b', Keyword.Constant),
            (r'[{}\[\]:,]', Punctuation),
            (r'\s+|\w+|.', Text),
        ]
    }


def register() -> None:
    """Makes the lexer known by its name to what looks lexers up."""
    row = (__name__, TextProtoLexer.name, tuple(TextProtoLexer.aliases), (), ())
    pygments.lexers.LEXERS[TextProtoLexer.__name__] = row
