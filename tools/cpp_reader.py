"""Reads C++ roughly, for tools/source_checks.py: comments and literals blanked out with positions
kept, brackets matched, and the declarations of a header listed. No parser: it knows the shapes that
our own headers have."""

import re

TOKEN = re.compile(
    r"""(?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s"]{0,16})\(.*?\)(?P=tag)")
      | (?P<line>//(?:\\\n|[^\n])*)
      | (?P<block>/\*.*?(?:\*/|\Z))
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<number>\b[0-9](?:'?[0-9a-zA-Z_.])*)
      | (?P<char>'(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)


def blank(text, literals):
    """`text` with comments, and with `literals` also strings and characters, replaced by spaces."""

    def spaces(match):
        if match.lastgroup == "number":
            return match.group()
        if not literals and match.lastgroup in ("raw", "tag", "string", "char"):
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return TOKEN.sub(spaces, text)


def matching(text, start):
    """The index just behind the bracket that closes the one at `start`; the end when none does."""
    close = {"(": ")", "{": "}", "[": "]"}[text[start]]
    depth = 0
    for index in range(start, len(text)):
        if text[index] == text[start]:
            depth += 1
        elif text[index] == close:
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def line_of(text, index):
    return text.count("\n", 0, index) + 1


TYPE_HEAD = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:typedef\s+)?(class|struct|union|enum)\b", re.DOTALL
)
NOT_DOCUMENTED_ALONE = re.compile(
    r"^(using|typedef|friend|static_assert|namespace|extern|template\s*<[^;]*>\s*friend)\b"
)


class Declaration:
    def __init__(self, kind, name, start, end, in_class):
        self.kind = kind  # "type" or "function"
        self.name = name
        self.start = start  # first line
        self.end = end  # last line of the declaration's head
        self.last = end  # last line with its body
        self.in_class = in_class


def without_directives(code):
    """Preprocessor lines, with their continuations, blanked out."""
    return re.sub(
        r"^[ \t]*#(?:\\\n|[^\n])*",
        lambda m: re.sub(r"[^\n]", " ", m.group()),
        code,
        flags=re.MULTILINE,
    )


def declarations(code):
    """Types and functions that a header declares in namespaces and publicly in their types.
    `code` is its text after blank(..., literals=True)."""
    code = without_directives(code)
    found = []
    scopes = []  # "namespace", or ["type", is public now, name]
    index, begin = 0, 0

    def head(end):
        return code[begin:end].strip()

    def first_line(end):
        return line_of(code, begin + len(code[begin:end]) - len(code[begin:end].lstrip()))

    def visible():
        return all(scope == "namespace" or scope[1] for scope in scopes)

    def add(end):
        text = re.sub(r"\[\[.*?\]\]", " ", head(end), flags=re.DOTALL).strip()
        if not text or not visible() or NOT_DOCUMENTED_ALONE.match(text):
            return None
        in_class = bool(scopes) and scopes[-1] != "namespace"
        type_match = TYPE_HEAD.match(text)
        if type_match and not re.search(r"\)\s*(const|noexcept|override|final)*\s*$", text):
            if code[end] == ";":
                return None  # forward declaration
            names = re.match(
                r"(?:class\s+|struct\s+)?(?:[A-Z_]+\s+)*(\w+)", text[type_match.end() :].strip()
            )
            declaration = Declaration(
                "type",
                names.group(1) if names else "",
                first_line(end),
                line_of(code, end),
                in_class,
            )
        else:
            before = re.sub(r"<[^<>]*>", "", text)
            call = re.search(r"([~\w]+|operator\s*\S+?|operator\s*\(\s*\))\s*\(", before)
            equals = re.search(r"(?<![=!<>])=(?!=)", before)
            if not call or (equals and equals.start() < call.start() and "operator" not in before):
                return None  # a variable
            declaration = Declaration(
                "function", call.group(1), first_line(end), line_of(code, end), in_class
            )
            owner = scopes[-1][2] if in_class else None
            if call.group(1) in (owner, f"~{owner}") or "operator" in call.group(1):
                declaration.kind = "trivial"
            accessor = in_class and re.search(r"\w\s*\(\s*\)", before)  # says what it returns
            if accessor or re.search(r"=\s*(default|delete)\s*$", text):
                declaration.kind = "trivial"
        found.append(declaration)
        return declaration

    while index < len(code):
        char = code[index]
        if char in "([":
            index = matching(code, index)
            continue
        if char == ";":
            add(index)
            begin = index + 1
        elif char == "{":
            text = head(index)
            type_match = TYPE_HEAD.match(re.sub(r"\[\[.*?\]\]", " ", text, flags=re.DOTALL).strip())
            if re.match(r"^(inline\s+)?namespace\b", text) or re.match(r"^extern\s*$", text):
                scopes.append("namespace")
                begin = index + 1
            elif (
                type_match
                and type_match.group(1) != "enum"
                and "(" not in re.sub(r"\w+\([^)]*\)", "", text)
            ):
                declaration = add(index)
                name = declaration.name if declaration else ""
                scopes.append(["type", type_match.group(1) != "class", name])
                begin = index + 1
            else:
                declaration = add(index)
                index = matching(code, index)
                if declaration:
                    declaration.last = line_of(code, index - 1)
                rest = re.match(r"\s*([;,{])?", code[index:])
                if rest.group(1):
                    # `= {...};`, `{...}, {...}` of an initialiser list: part of the same statement.
                    begin_of_rest = index + rest.start(1)
                    if rest.group(1) == ";":
                        index = begin_of_rest + 1
                        begin = index
                    continue
                begin = index
                continue
        elif char == "}":
            if scopes:
                scopes.pop()
            begin = index + 1
        elif char == ":" and scopes and scopes[-1] != "namespace":
            label = head(index)
            if label in ("public", "protected", "private"):
                scopes[-1][1] = label == "public"
                begin = index + 1
        index += 1
    return found
