"""Numbers as a person reads them."""


def significant(value: float, digits: int = 3, sign: str = '') -> str:
    """Returns a number with so many significant digits: '0.0123', '12.3', '12,346'.

    Args:
      value: any number.
      digits: number of digits; larger numbers are written in full, not as 1.23e+04.
      sign: '+' writes the sign of positive numbers, too.
    """
    text = f'{value:{sign}.{digits}g}'
    return f'{value:{sign},.0f}' if 'e+' in text or abs(value) >= 1000 else text
