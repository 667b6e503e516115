"""The terminals of the one-line grammar as regular expressions, in order of precedence."""

from allocation.rules.ask.words.numbers import COMMA_LENGTH, FIRST_LENGTH, LENGTH, ONE_LENGTH, WORD_NUMBER
from allocation.rules.ask.words.times import (
    CLOCK,
    DATE,
    END_OF,
    INSTANT,
    MONTH_DATE,
    MONTH_NAMED,
    ORDINAL_DAY,
    UNTIL,
    UNTIL_INCLUDING,
    WEEKDAY,
    WORKDAY,
)
from tenants.platform.text import CURRENCY_PATTERN

_NUM = rf"(?:\d{{1,6}}|{WORD_NUMBER})"
_ARTICLE = r"(?:\s+(?:an?|the))?"
_WEEKDAY_LIST = rf"{WEEKDAY}(?:(?:[\s,&/+]+|\s+and\s+){WEEKDAY})*"
_NTH = r"(?:\d{1,2}(?:st|nd|rd|th)|first|second|third|fourth|fifth|last)"
_MONTH_DAY = rf"(?:the\s+)?{_NTH}(?:\s+(?:{WORKDAY}|{WEEKDAY}|day))?"
_HOW_OFTEN = rf"(?:other|{_NUM}|second|third)"
_EACH_NTH = r"(?:(?!1st)\d{1,2}(?:st|nd|rd|th))"
_OFTEN = rf"(?:{_HOW_OFTEN}|{_EACH_NTH})"
_HOUR = r"\d{1,2}(?:[:.]\d\d)?\s?(?:[ap]m)?"
# What only a series has, after days and hours: `mon-fri 9-17 until 18 dec`.
_ENDED = (
    rf"(?=\s+(?:from\s+)?{_HOUR}\s?(?:-|to|until|till)\s?{_HOUR}\s+"
    rf"(?:until|till|through|up\s+to|from|starting|(?:this|next)\s|(?:in|during)\s+{MONTH_NAMED}|"
    rf"for\s+(?:the\s+next|an?|{_NUM})\s|{_NUM}\s+times))"
)
THING = r"(?:gpu|node|machine|host|server|box)"
PLACE_LEAD = r"(?:only\s+)?on|pin(?:ned)?(?:\s+to)?|(?:at|in)(?=\s+node\s)|(?=node\s)"
_COURTESY = (
    r"(?:i|we)(?:'d|\s+would)?\s+(?:like|need|want|love)(?:\s+to)?"
    r"(?:\s+(?:book|have|get|reserve|use|run\s+on))?",
    r"(?:can|could|may)\s+(?:i|we|you)(?:\s+please)?"
    r"(?:\s+(?:have|get|book|reserve|use|give(?:\s+(?:me|us))?))?",
    r"(?:book|reserve|get|give|grab|schedule)(?:\s+(?:me|us))?|gimme|nvidia(?=\s+(?:gpu|card))",
    r"(?:need|want|please|pls|plz|thanks|thank\s+you|thx|hi|hello|hey)",
    r"(?:a|an|the|for|of|with|and|using|plus|that\s+is|just|either|(?:duration|length)(?:\s+of)?)",
)

_AT_MOST = (
    r"(?:(?:for\s+)?(?:max(?:imum)?|a\s+budget|budget)(?:\s+of)?|(?:for\s+)?(?:at\s+most|up\s+to|under|below|"
    r"less\s+than|(?:no|not)\s+more\s+than|within)|for)"
)
_MONEY_UNIT = rf"(?:{CURRENCY_PATTERN.lower()})"
_CURRENCY = rf"(?:euros?|dollars?|{_MONEY_UNIT})"
_AMOUNT = r"\d{1,7}(?:[.,]\d{1,2})?"
_RUNS = r"(?:runs?|jobs?|tasks?|elements?)"

# The first pattern that matches one or more whole words is the token.
TERMINALS: tuple[tuple[str, str], ...] = (
    ("RRULE", r"rrule:\S+"),
    ("NOISE", r"(?:without|with\s+no)\s+(?:an?\s+|any\s+)?gpus?|cpu[\s-]only"),
    ("WORKLOAD", r"kind:[^\s,;]+"),
    (
        "SCRATCH",
        r"(?:with\s+)?(?:(?:>=|≥|at\s+least|min(?:imum)?(?:\s+of)?)\s*)?\d{1,6}(?:\.\d)?\s*[gt]i?b?\s*(?:of\s+)?"
        r"(?:local\s+)?(?:nvme|scratch|ssd|disk)(?:\s+(?:disk|space|scratch|storage))?",
    ),
    (
        "STORAGE",
        r"(?:with\s+)?(?:(?:local\s+)?nvme(?:\s+(?:disk|scratch|storage))?|"
        r"local\s+(?:ssd|disk|scratch|storage)|shared\s+(?:storage|disk|file\s?system))",
    ),
    (
        "PARALLEL",
        rf"(?:(?:at\s+most|up\s+to|max(?:imum)?)\s+)?{_NUM}(?:\s+{_RUNS})?\s+"
        r"(?:at\s+a\s+time|at\s+once|in\s+parallel)|"
        rf"(?:in\s+)?parallel\s+{_NUM}",
    ),
    ("GPUHOURS", rf"{_NUM}\s*gpu[\s-]*(?:hours?|hrs?|h)(?![a-z])(?:\s+(?:of|on|with))?"),
    ("ARRAY", rf"(?:an?\s+)?array(?:\s+of|\s*:)?\s+{_NUM}(?:\s+{_RUNS})?(?:\s+of)?"),
    ("ARRAY", rf"{_NUM}\s+{_RUNS}(?:\s+of)?"),
    ("INSTANT", INSTANT),
    ("DAY", rf"{DATE}|{MONTH_DATE}"),
    ("REPEAT", rf"(?:every|each)\s+{WEEKDAY}\s*(?:-|to|through|thru|until)\s*{WEEKDAY}"),
    ("REPEAT", rf"{WEEKDAY}\s*(?:-|to|through|thru)\s*{WEEKDAY}{_ENDED}"),
    ("REPEAT", rf"(?:every|each)\s+(?:{WORKDAY}|(?:{_HOW_OFTEN}\s+)?{_WEEKDAY_LIST})"),
    (
        "REPEAT",
        rf"(?:(?:on|every|each)\s+)?(?:the\s+)?{_NTH}\s+(?:{WORKDAY}|{WEEKDAY})\s+(?:of\s+)?"
        r"(?:every|each|the)\s+month",
    ),
    (
        "REPEAT",
        rf"(?:(?:on|every|each)\s+)?(?:the\s+)?{_NTH}\s+day\s+(?:of\s+)?(?:every|each)\s+month|"
        # Every second or third Monday is one of two or three weeks.
        rf"(?:every|each)\s+(?:first|1st|last)\s+(?:{WORKDAY}|{WEEKDAY})|"
        rf"(?:every|each)\s+{_EACH_NTH}\s+{_WEEKDAY_LIST}",
    ),
    (
        "REPEAT",
        rf"(?:every|each)\s+(?:{_OFTEN}\s+)?months?\s+on\s+"
        rf"{_MONTH_DAY}(?:(?:[\s,]+|\s+and\s+){_MONTH_DAY})*",
    ),
    (
        "REPEAT",
        rf"(?:every|each)\s+(?:{_OFTEN}\s+)?weeks?"
        rf"(?:\s+(?:on\s+)?(?:{WORKDAY}|{_WEEKDAY_LIST}))?",
    ),
    ("REPEAT", r"(?:every|each)(?=\s+(?:morning|afternoon|evening|night)(?:\s|$))"),
    ("REPEAT", rf"(?:every|each)\s+(?:{_OFTEN}\s+)?weekends?|(?:on\s+)?weekends"),
    ("REPEAT", rf"monthly\s+on\s+{_MONTH_DAY}(?:(?:[\s,]+|\s+and\s+){_MONTH_DAY})*"),
    (
        "REPEAT",
        rf"(?:every\s+fortnight|fortnightly|bi-?weekly)"
        rf"(?:\s+(?:on\s+)?(?:{WORKDAY}|{_WEEKDAY_LIST}))?",
    ),
    (
        "REPEAT",
        rf"(?:every|each)\s+(?:{_OFTEN}\s+)?(?:days?|months?)|everyday|daily|weekly|monthly",
    ),
    ("REPEAT", r"(?:every|each)\s+(?:the\s+)?\d{1,2}(?:st|nd|rd|th)"),
    ("REPEAT", rf"(?:on\s+)?(?:{WORKDAY}s|{WEEKDAY}s(?:(?:[\s,&]+|\s+and\s+){WEEKDAY}s)*)"),
    (
        "MONEY",
        rf"(?:{_AT_MOST}\s+)?(?:{_CURRENCY}\s*-?\s*{_AMOUNT}|-?\s*{_AMOUNT}\s*{_CURRENCY}(?![a-z]))"
        r"(?:\s+(?:max(?:imum)?|at\s+most|budget|in\s+(?:total|all)))?",
    ),
    (
        "QUANT",
        r"up\s+to|at\s+(?:most|least)(?=\s+\w+\s+(?!gi?b))(?!\s+\d+\s*gi?b)|max(?:imum)?(?:\s+of)?|"
        r"(?:no\s+)?(?:more|less|fewer)\s+than|min(?:imum)?(?:\s+of)?(?=\s+\w+\s+(?!gi?b))(?!\s+\d+\s*gi?b)",
    ),
    (
        "NODES",
        rf"(?:(?:(?:spread\s+)?(?:across|over)\s+|on\s+)?{_NUM}\s+nodes(?:\s+(?:of|with))?)|"
        rf"(?!(?:one|a\s+single|single)\s+node(?!s|\s+(?:of|with)))(?:(?:{_NUM}|an?|the)\s+)?(?:(?:whole|full|entire|complete)\s+)?nodes?(?:\s+of)?",
    ),
    ("WEEKNUMBER", r"(?:in\s+)?(?:week|kw|cw|calendar\s+week)\s*\d{1,2}(?!\d)"),
    ("CLOCKWORDS", rf"(?:half\s+past|quarter\s+(?:past|to))\s+{_NUM}"),
    ("TIMES", rf"(?:{_NUM}\s+|\d{{1,6}})(?:times|dates|occurrences)"),
    (
        "DAY",
        rf"in\s+(?:{_NUM}|an?)\s+(?:days?|weeks?)|(?:{_NUM}|an?)\s+(?:days?|weeks?)\s+from\s+(?:now|today)|"
        rf"an?\s+week\s+from\s+{WEEKDAY}|{WEEKDAY}\s+week(?!\s+(?:on|at)\s)",
    ),
    ("INTIME", rf"in\s+(?:{FIRST_LENGTH})|{ONE_LENGTH}\s+from\s+now"),
    ("WITHIN", rf"(?:within|(?:in|during|over)\s+the\s+next)\s+(?:the\s+next\s+)?(?:{FIRST_LENGTH})"),
    (
        "ASAP",
        r"(?:(?:from|starting|start|beginning)\s+)?(?:(?:right\s+)?now(?:\s+on)?|asap|a\.s\.a\.p|as\s+soon\s+as\s+possible|immediately|"
        r"(?:right|straight)\s+away|at\s+once|first\s+available|earliest(?:\s+possible)?|"
        r"next\s+available|soonest|as\s+early\s+as\s+possible|earliest\s+start)",
    ),
    (
        "ANYTIME",
        r"(?:at\s+)?any\s?time|whenever|sometime|at\s+some\s+point|no\s+rush|"
        r"flexible(?:\s+(?:start|time))?",
    ),
    ("WHOLEDAY", rf"all(?:\s+of)?(?=\s+(?:today|tomorrow|{WEEKDAY})(?:\s|$))"),
    ("WHOLEDAY", r"(?:for\s+)?(?:all|(?:the\s+)?(?:whole|entire|full))\s+day(?:\s+long)?"),
    (
        "WHOLESPAN",
        r"(?:for\s+|over\s+)?(?:all|(?:the\s+)?(?:whole|entire|full))\s+(?:of\s+)?"
        r"(?:the\s+)?(?:(?:next|this|coming)\s+)?(?:week(?:end)?|month)(?:\s+long)?|"
        r"(?:over|for|through)\s+the\s+(?:next\s+|coming\s+)?weekend|"
        r"the\s+whole\s+(?:next\s+|coming\s+)?week(?:end)?",
    ),
    (
        "SPAN",
        r"(?:(?:on|at|in|during)\s+)?(?:the\s+)?"
        r"(?:(?:this|next|coming|this\s+coming|early\s+next|late\s+next)\s+)?weekend|"
        r"(?:(?:during|in|some\s?time)\s+)?(?:the\s+)?(?:week\s+after\s+next|(?:this|next|the\s+coming|the\s+next)"
        r"\s+(?:week|month))",
    ),
    (
        "DAY",
        rf"day\s+after\s+tomorrow|the\s+day\s+after\s+tomorrow|today|tomorrow|tmrw|tmr|tmw|"
        rf"tomo|2morrow|(?:(?:next|this|coming|this\s+coming|the\s+coming)\s+)?{WEEKDAY}"
        rf"(?:\s+(?:next|this)\s+week)?|{ORDINAL_DAY}",
    ),
    ("YESTERDAY", rf"yesterday|last\s+(?:night|week|{WEEKDAY})"),
    ("TONIGHT", r"tonight|tonite|this\s+(?:morning|afternoon|evening)"),
    (
        "OVERNIGHT",
        r"overnight|(?:all|over|through|for)\s+(?:the\s+)?night(?:\s+long)?|"
        r"(?:the\s+)?(?:whole|entire)\s+night",
    ),
    (
        "DAYEND",
        r"(?:the\s+)?end\s+of\s+(?:the\s+|this\s+)?(?:day|week)|eod|eow|cob|"
        r"close\s+of\s+business",
    ),
    # Alone it would be one day, and people mean several.
    (
        "DAY",
        rf"(?:(?<=by\s)|(?<=until\s)|(?<=till\s)|(?<=than\s)|(?<=deadline\s)){END_OF}",
    ),
    ("PART", r"(?:in\s+the\s+|during\s+the\s+|at\s+)?(?:morning|afternoon|evening|night)"),
    (
        "TOGETHER",
        r"(?:(?:prefer(?:ably)?|ideally)\s+)?(?:all\s+)?(?:(?:on|in|within)\s+)?(?:the\s+)?"
        r"(?:same\s+(?:gpu|nvlink(?:\s+domain)?|domain|node|machine|host|server|box|rack)|"
        r"(?:one|a\s+single|single)\s+(?:node|machine|host|server|box|rack|nvlink\s+domain))",
    ),
    ("TOGETHER", r"(?:(?:prefer(?:ably)?|ideally)\s+)?(?:nvlink(?:ed)?(?:\s+domain)?)"),
    ("COMMALENGTH", COMMA_LENGTH),
    ("CLOCKHOURS", r"\d{1,3}:\d{2}:\d{2}|\d{2}:\d{2}\s*(?:hours?|hrs?|h)(?![a-z\d])"),
    ("LENGTH", LENGTH),
    (
        "SHARE",
        rf"(?:a\s+)?half(?!\s+a\s+dozen)(?:\s+of)?{_ARTICLE}|three\s+quarters(?:\s+of)?{_ARTICLE}|"
        rf"(?:an?\s+|one\s+)?(?:quarter|third|eighth)(?:\s+of)?{_ARTICLE}|"
        rf"(?:[½¼¾⅓⅔⅛]|[1235]/[2348])(?:\s+of)?{_ARTICLE}|"
        rf"\d{{1,2}}\s?%(?:\s+of)?{_ARTICLE}|0?\.\d{{1,3}}(?:\s+of)?{_ARTICLE}",
    ),
    (
        "VRAM",
        r"(?:with\s+)?(?:>=|≥|=>|at\s+least|min(?:imum)?)?\s*\d{1,4}\s*gi?b?"
        r"\s+(?:of\s+)?(?:vram|gpu\s+(?:memory|ram|mem)|hbm)",
    ),
    (
        "RAM",
        r"(?:(?:>=|≥|=>|at\s+least|min(?:imum)?)\s*)?\d{1,6}\s*(?:gi?b?)?\s*(?:of\s+)?"
        r"(?:host\s+|system\s+|main\s+)?(?:ram|memory|mem)",
    ),
    ("CORES", rf"{_NUM}\s*-?(?:host\s+|cpu[\s-]+)?(?:cores?|cpus?|vcpus?)"),
    (
        "GB",
        r"(?:(?:>=|≥|=>|at\s+least|min(?:imum)?)\s*\d{1,4}\s*gi?b?|\d{1,4}\s*gi?b?\s*\+|"
        r"\d{1,4}\s*gi?b?\s+or\s+more|\d{1,4}\s*gi?b?)",
    ),
    (
        "BURST",
        r"(?:may|can)\s+burst\s+(?:up\s+to|for(?:\s+at\s+most)?|at\s+most)\s+"
        rf"(?:{_MONEY_UNIT}\s*)?-?\d{{1,7}}(?:\.\d{{1,2}})?(?:\s*{_MONEY_UNIT}(?![a-z]))?",
    ),
    ("CLOCK", CLOCK),
    ("XNUM", rf"[x*]\s*{_NUM}|(?<=\w):\d{{1,3}}"),
    ("NUMX", rf"{_NUM}[x*](?=\s|[a-z0-9])|{_NUM}\s+[x*](?=\s|[a-z]|$)|\d{{1,6}}x"),
    ("DEC", r"\d{1,5}[.,]\d{1,3}"),
    ("NUM", _NUM),
    ("APART", r"together|close\s+together|connected"),
    (
        "CHEAPEST",
        r"(?:the\s+)?cheapest(?:\s+(?:possible|option|way|one))?|as\s+cheap(?:ly)?\s+as\s+"
        r"possible|(?:at\s+the\s+)?lowest\s+(?:price|cost)",
    ),
    (
        "ANY",
        r"any(?:thing|one)?(?:\s+(?:free|available))?(?:\s+(?:kind|type)(?:\s+of)?)?"
        r"(?:\s+(?:class|model))?|whichever|whatever(?:\s+is)?(?:\s+(?:free|available))?",
    ),
    ("MIG", r"mig(?:\s+(?:slices?|instances?|partitions?|profiles?))?"),
    ("SLICE", r"(?:gpu\s+)?(?:slices?|instances?|partitions?)"),
    (
        "GPU",
        r"(?:graphics\s+cards?|gpus?|cards?|devices?|accelerators?|graphics|pieces?|pcs?|units?)",
    ),
    ("WHOLE", r"(?:whole|full|entire|complete)"),
    ("EACH", r"each|per\s+(?:gpu|card|device|slice|core)"),
    ("FROM", r"not\s+before|no\s+earlier\s+than|not\s+earlier\s+than|as\s+of|from|after"),
    ("START", r"(?:start|begin)(?:s|ing|ning)?(?:\s+(?:at|on|from))?"),
    (
        "BY",
        r"(?:(?:must\s+|needs?\s+|has\s+|have\s+)?(?:to\s+)?(?:be\s+)?(?:done|finish(?:ed|ing)?|ready|completed?)\s+)?(?:by|before)|"
        r"no[t]?\s+later\s+than|latest(?:\s+by)?|deadline:?|due(?:\s+(?:by|on))?",
    ),
    ("UNTIL", UNTIL),
    ("BETWEEN", r"between|in\s+between"),
    ("TO", r"to"),
    ("DASH", r"--?|->"),
    ("AT", r"at(?=\s|$)|@"),
    ("OR", r"or|/|\|"),
    ("AND", r"and|&"),
    ("NEXT", r"(?:the\s+)?(?:next|coming)"),
    ("THIS", r"this"),
    ("NOISE", "|".join(_COURTESY)),
)

_BEFORE_DAY = (
    rf"(?=\s+(?:{DATE}|{MONTH_DATE}|{END_OF}|(?:(?:next|this|coming)\s+)?{WEEKDAY}\b|today\b|"
    r"tomorrow\b))"
)
_MONTHS = rf"(?:{_NUM}|an?)\s+months?"

# Words about the first and the last day. They take precedence in a line that repeats.
SERIES_TERMINALS: tuple[tuple[str, str], ...] = (
    ("DAY", END_OF),
    ("UNTIL", UNTIL_INCLUDING),
    ("UNTIL", rf"(?:up\s+to|to|ending(?:\s+(?:on|with))?|last\s+(?:on|date|day)){_BEFORE_DAY}"),
    ("NOISE", r"repeat(?:s|ed|ing)?|recurring|inclusive|included"),
    ("LENGTH", rf"(?:for\s+)?(?:(?:the\s+)?(?:next|coming)\s+)?(?:{_MONTHS}|{_NUM}\s+nights)"),
    (
        "NEXTLENGTH",
        rf"(?:(?:over|during|in|within)\s+)?(?:the\s+)?(?:next|coming)\s+(?:{LENGTH}|{_MONTHS})",
    ),
    ("INSTANT", INSTANT),
    ("DAY", rf"{DATE}|{MONTH_DATE}"),
    ("MONTHWEEK", rf"(?:(?:in|during)\s+)?(?:the\s+)?(?:first|last)\s+week\s+(?:of|in)\s+{MONTH_NAMED}"),
    (
        "MONTH",
        rf"(?:in|during|throughout|over|for)\s+(?:the\s+month\s+of\s+)?{MONTH_NAMED}|"
        r"(?:(?:in|during|throughout|over|for)\s+)?(?:the\s+)?(?:this|next|coming)\s+month|"
        rf"(?<=until\s|.till\s){MONTH_NAMED}",
    ),
)
