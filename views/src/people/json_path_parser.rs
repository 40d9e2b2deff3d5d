//! Reads JSONPath templates as kubectl takes them: texts, field paths, indices, `[*]`, and `range` … `end`.
//!
//! Invariant: unsupported expressions, such as filters, recursion and slices, are errors that name the expression.

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Printed as it is.
    Text(String),
    /// The values at a path.
    Path(Path),
    /// The parts, once for each value at a path.
    Range(Path, Vec<Part>),
}

/// A path, from the root of the object or from the current value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Path {
    /// Whether it begins with `$`.
    pub(super) from_root: bool,
    pub(super) steps: Vec<Step>,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field of an object.
    Field(String),
    /// An item of an array; negative numbers count from its end.
    Item(i64),
    /// All items of an array, or all values of an object.
    All,
}

/// An open `range` and the parts in it.
type OpenRange = (Option<Path>, Vec<Part>);

/// Parses a template.
pub(super) fn parse(template: &str) -> Result<Vec<Part>, String> {
    let mut open: Vec<OpenRange> = vec![(None, Vec::new())];
    let mut rest = template;
    while !rest.is_empty() {
        let (text, after) = rest.split_once('{').unwrap_or((rest, ""));
        if !text.is_empty() {
            push(&mut open, Part::Text(text.to_owned()));
        }
        if text.len() == rest.len() {
            break;
        }
        let end = closing_brace(after).ok_or_else(|| format!("{{{after}: the closing brace is missing"))?;
        let (expression, next) = after.split_at(end);
        action(expression.trim(), &mut open)?;
        rest = next.get(1..).unwrap_or_default();
    }
    match (open.pop(), open.is_empty()) {
        (Some((_, parts)), true) => Ok(parts),
        _ => Err("{range}: {end} is missing".to_owned()),
    }
}

fn push(open: &mut [OpenRange], part: Part) {
    if let Some((_, parts)) = open.last_mut() {
        parts.push(part);
    }
}

/// Returns the byte offset of the brace that closes an expression; braces in quotes do not count.
fn closing_brace(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (place, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '}') => return Some(place),
            _ => {}
        }
    }
    None
}

/// Reads the text between braces: quoted texts and paths, or a `range` or its `end`.
fn action(expression: &str, open: &mut Vec<OpenRange>) -> Result<(), String> {
    if let Some(path) = expression.strip_prefix("range").filter(|rest| rest.starts_with([' ', '\t'])) {
        open.push((Some(parse_path(path.trim())?), Vec::new()));
        return Ok(());
    }
    if expression == "end" {
        return match open.pop() {
            Some((Some(path), parts)) => {
                push(open, Part::Range(path, parts));
                Ok(())
            }
            _ => Err("{end}: no {range} is open".to_owned()),
        };
    }
    if expression.is_empty() {
        return Err("{}: empty expression".to_owned());
    }
    let mut rest = expression;
    while !rest.is_empty() {
        let (word, next) = first_word(rest);
        let part = match word.chars().next() {
            Some(quote @ ('"' | '\'')) => Part::Text(quoted(word, quote)?),
            _ => Part::Path(parse_path(word)?),
        };
        push(open, part);
        rest = next.trim_start();
    }
    Ok(())
}

/// Splits off the first word; blanks within quotes and brackets do not end it.
fn first_word(text: &str) -> (&str, &str) {
    let (mut quote, mut escaped, mut depth) = (None, false, 0_u32);
    for (place, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == c => {
                quote = None;
                if depth == 0 && text.starts_with(c) {
                    return text.split_at(place + 1);
                }
            }
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => depth = depth.saturating_sub(1),
            (None, ' ' | '\t') if depth == 0 => return text.split_at(place),
            _ => {}
        }
    }
    (text, "")
}

/// Returns a quoted text with its escapes replaced.
fn quoted(word: &str, quote: char) -> Result<String, String> {
    let inner = word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let inner = inner.ok_or_else(|| format!("{{{word}}}: the closing quote is missing"))?;
    let (mut text, mut chars) = (String::new(), inner.chars());
    while let Some(c) = chars.next() {
        text.push(match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other) => other,
                None => return Err(format!("{{{word}}}: ends in an escape")),
            },
            (c, _) => c,
        });
    }
    Ok(text)
}

fn parse_path(text: &str) -> Result<Path, String> {
    let unsupported =
        |what: &str| format!("{{{text}}}: {what} is not supported; use field paths, [N], [*] and range");
    let mut path = Path { from_root: text.starts_with('$'), steps: Vec::new() };
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    if rest.is_empty() || rest == "." {
        return if text.is_empty() { Err("{}: empty expression".to_owned()) } else { Ok(path) };
    }
    // The first field may come without a dot.
    let mut is_first = true;
    while !rest.is_empty() {
        if let Some(bracket) = rest.strip_prefix('[') {
            let end = closing_bracket(bracket).ok_or_else(|| format!("{{{text}}}: ] is missing"))?;
            let (inner, next) = bracket.split_at(end);
            path.steps
                .push(step_in_brackets(inner.trim()).ok_or_else(|| unsupported(&format!("[{inner}]")))?);
            rest = next.get(1..).unwrap_or_default();
        } else if rest.starts_with("..") {
            return Err(unsupported(".."));
        } else if rest.starts_with('.') || is_first {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let (name, next) = field_name(field);
            rest = next;
            match name.as_str() {
                // A dot before a bracket.
                "" if rest.starts_with('[') => {}
                "" => return Err(format!("{{{text}}}: a field name is missing")),
                "*" => path.steps.push(Step::All),
                name if name.contains(['(', ')', '?', '|']) => return Err(unsupported(name)),
                _ => path.steps.push(Step::Field(name)),
            }
        } else {
            return Err(unsupported(rest));
        }
        is_first = false;
    }
    Ok(path)
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    text.char_indices().find_map(|(place, c)| match (quote, c) {
        (Some(open), _) => {
            if open == c {
                quote = None;
            }
            None
        }
        (None, '"' | '\'') => {
            quote = Some(c);
            None
        }
        (None, ']') => Some(place),
        _ => None,
    })
}

fn step_in_brackets(inner: &str) -> Option<Step> {
    if inner == "*" {
        return Some(Step::All);
    }
    for quote in ['\'', '"'] {
        if let Some(name) = inner.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return (!name.contains(quote)).then(|| Step::Field(name.replace("\\.", ".")));
        }
    }
    inner.parse().ok().map(Step::Item)
}

/// Splits a field name off; a backslash escapes the next character.
fn field_name(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (place, c) in text.char_indices() {
        match c {
            _ if escaped => {
                name.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (name, text.get(place..).unwrap_or_default()),
            _ => name.push(c),
        }
    }
    (name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_expressions_are_named() {
        for (template, named) in [
            ("{.items[?(@.a==1)]}", "[?(@.a==1)]"),
            ("{..name}", ".."),
            ("{.a[1:2]}", "[1:2]"),
            ("{.a[0,1]}", "[0,1]"),
            ("{.a", "brace"),
            ("{.a[}", "] is missing"),
            ("{range .a}x", "{end} is missing"),
            ("{end}", "no {range}"),
            ("{}", "empty"),
            ("{\"a}", "brace"),
            ("{.a.}", "field name"),
            ("{len(.a)}", "len("),
        ] {
            let error = parse(template).unwrap_err();
            assert!(error.contains(named), "{template}: {error}");
        }
    }

    #[test]
    fn every_short_template_is_read_or_refused() {
        let alphabet =
            ["{", "}", ".", "[", "]", "*", "'", "\"", "\\", "a", " ", "$", "é", "-1", "range .a", "end"];
        for a in alphabet {
            for b in alphabet {
                for c in alphabet {
                    for d in alphabet {
                        let _ = parse(&format!("{{{a}{b}{c}{d}}}"));
                        let _ = parse(&format!("{a}{b}{c}{d}"));
                    }
                }
            }
        }
    }
}
