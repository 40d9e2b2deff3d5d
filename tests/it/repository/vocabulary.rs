//! The project's words as a test: vague nouns and names of earlier modules do not come back, and INVARIANTS.md cites tests
//! that exist, and all modules of laws.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::fixtures::packages::SOURCES;
use regex::Regex;

/// Words that name no object, and phrases and module names that the glossary replaced.
const BANNED: &str = r"(?i)\b(somebody|nobody|whoever|whom|anew|takes no turns|lineup|earmarks?|outlook|tallies|(un)?judged|untold|overtaking)\b";

/// Folders whose comments and names say exactly what they mean: `VAGUE` words do not come back there.
const PLAIN: [&str; 8] = [
    "core/src/conversion",
    "core/src/history",
    "core/src/quota",
    "core/src/reconciler",
    "core/src/resources",
    "core/src/snapshot",
    "src",
    "views/src",
];

/// Words for what an exact word says: report, no longer, at most, expired, continue, and the name of the thing.
const VAGUE: &str =
    r"(?i)\b(tell|tells|told|telling|any more|no more|is over|are over|goes on|go on|going on|those|who)\b";

/// Folders whose texts users read: `VAGUE_IN_TEXTS` words do not come back there.
const FOR_USERS: [&str; 2] = ["views/src", "src/cli/people"];

/// The part of `VAGUE` that is vague in a message, too, and words for queues and users that have a name.
const VAGUE_IN_TEXTS: &str = r"(?i)\b(tell|tells|told|telling|any more|no more|those|who|no one)\b";

/// A text of a source, in a group. Comments, characters and raw texts are found too, so that a quotation mark in them begins no text.
const TEXT_OF_SOURCE: &str =
    r#"(?s)//[^\n]*|'(?:\\u\{[^}]*\}|\\.|[^'\\\n])'|\br"[^"]*"|\br\#".*?"\#|"((?:[^"\\]|\\.)*)""#;

/// A doc comment that repeats the name of a field.
const EMPTY_DOC: &str = r"^\s*/// (Its|Their) \w+( \w+)*\.$";

/// Folders that are not sources: builds, the changelog of `make release` with old subjects of commits, and git's own.
const GENERATED: [&str; 3] = ["target", "dist", ".git"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !GENERATED.iter().any(|folder| path.ends_with(folder)) {
                collect(&path, extensions, found);
            }
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|e| extension == *e)) {
            found.push(path);
        }
    }
}

/// Returns a line with the words of identifiers apart.
fn split_identifiers(line: &str) -> String {
    static HUMPS: LazyLock<Regex> = LazyLock::new(|| Regex::new("([a-z0-9])([A-Z])").unwrap());
    HUMPS.replace_all(&line.replace('_', " "), "$1 $2").into_owned()
}

#[test]
fn words_inside_identifiers_are_seen() {
    let banned = Regex::new(BANNED).unwrap();
    for line in ["fn ask_somebody()", "struct WriteOutlook;", "let untold = 1;", "// nobody"] {
        assert!(banned.is_match(&split_identifiers(line)), "{line}");
    }
    assert!(
        !banned.is_match(&split_identifiers("let prejudged_lineups = 1;")),
        "parts of words are other words"
    );
}

#[test]
fn banned_words_do_not_occur() {
    let banned = Regex::new(BANNED).unwrap();
    let mut files = Vec::new();
    collect(&root(), &["rs", "md"], &mut files);
    files.sort();
    let mut wrong = Vec::new();
    files.retain(|file| !file.ends_with("tests/it/repository/vocabulary.rs"));
    for file in &files {
        let text = fs::read_to_string(file).unwrap();
        for (number, line) in
            text.lines().enumerate().filter(|(_, line)| banned.is_match(&split_identifiers(line)))
        {
            wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the comment of a line, and the names that it declares. Texts for users are neither.
fn comment_and_names(line: &str) -> String {
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"\b(?:fn|struct|enum|trait|type|const|static|mod|let(?: mut)?) (\w+)").unwrap()
    });
    let (code, comment) = line.split_once("//").unwrap_or((line, ""));
    let names = NAME.captures_iter(code).map(|found| split_identifiers(&found[1])).collect::<Vec<_>>();
    format!("{comment} {}", names.join(", "))
}

#[test]
fn comments_and_names_are_apart_from_texts() {
    let vague = Regex::new(VAGUE).unwrap();
    for line in ["/// A record tells it.", "fn tell_opened() {}", "let told = 1;", "x(); // That goes on."] {
        assert!(vague.is_match(&comment_and_names(line)), "{line}");
    }
    for line in [r#"let note = "to go on, scale to 0";"#, "teller.told();", "/// No limit: more."] {
        assert!(!vague.is_match(&comment_and_names(line)), "{line}");
    }
    let empty = Regex::new(EMPTY_DOC).unwrap();
    assert!(empty.is_match("    /// Its effective priority."));
    assert!(!empty.is_match("    /// Its quota is free after its pods have ended, in seconds."));
}

/// Returns the lines of a source with their numbers, except for doc comments in types of the command line: these are its help.
fn lines_beside_help(text: &str) -> impl Iterator<Item = (usize, &str)> {
    static COMMAND_LINE: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^#\[derive\(.*\b(?:Args|Parser|Subcommand|ValueEnum)\b").unwrap());
    let mut in_help = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let code = line.trim_start();
        in_help = COMMAND_LINE.is_match(code) || (in_help && code != "}" && !code.starts_with("#[derive("));
        !(in_help && code.starts_with("///"))
    })
}

#[test]
fn help_is_apart_from_comments() {
    let text = "/// One.\n#[derive(Debug, clap::Args)]\nstruct A {\n    /// Help.\n    a: B,\n}\n/// Two.\n";
    let lines: Vec<usize> = lines_beside_help(text).map(|(number, _)| number).collect();
    assert_eq!(lines, [0, 1, 2, 4, 5, 6]);
}

#[test]
fn plain_folders_stay_plain() {
    let (vague, empty) = (Regex::new(VAGUE).unwrap(), Regex::new(EMPTY_DOC).unwrap());
    let mut wrong = Vec::new();
    for folder in PLAIN {
        let mut files = Vec::new();
        collect(&root().join(folder), &["rs"], &mut files);
        assert!(!files.is_empty(), "{folder} has no sources");
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in lines_beside_help(&text) {
                if vague.is_match(&comment_and_names(line)) || empty.is_match(line) {
                    wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns the texts of a source with their lines, without comments, names and tests; of a template, what is outside of tags.
fn texts_for_users(source: &str, is_template: bool) -> Vec<(usize, String)> {
    static TEXT: LazyLock<Regex> = LazyLock::new(|| Regex::new(TEXT_OF_SOURCE).unwrap());
    static TAG: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"<[^>]*>|\{[^}]*\}+").unwrap());
    static JOINED: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\\n\s*").unwrap());
    if is_template {
        let line = |(number, line): (usize, &str)| (number + 1, TAG.replace_all(line, " ").into_owned());
        return source.lines().enumerate().map(line).collect();
    }
    let code = source.split("\n#[cfg(test)]\n").next().unwrap();
    let text = |found: regex::Captures<'_>| {
        let text = found.get(1)?;
        let line = code[..text.start()].matches('\n').count() + 1;
        Some((line, JOINED.replace_all(text.as_str(), "").into_owned()))
    };
    TEXT.captures_iter(code).filter_map(text).collect()
}

#[test]
fn texts_are_read_apart_from_comments_names_and_tests() {
    let vague = Regex::new(VAGUE_IN_TEXTS).unwrap();
    let is_vague = |source: &str, is_template: bool| {
        texts_for_users(source, is_template).iter().any(|(_, text)| vague.is_match(text))
    };
    for source in [
        r#"say("it can borrow from no one");"#,
        "say(\"it asks for nothing any \\\n     more\");",
        r#"let quote = '"'; say("\"a\" are not told apart"); // said"#,
        "fn f<'a>(text: &'a str) { say(\"those\") }",
    ] {
        assert!(is_vague(source, false), "{source}");
    }
    for source in [
        "// those\nlet told = 1;",
        r#"say("a whole number"); // who"#,
        "x();\n#[cfg(test)]\nmod tests { const A: &str = \"those\"; }",
        r#"let pattern = Regex::new(r"those");"#,
    ] {
        assert!(!is_vague(source, false), "{source}");
    }
    assert!(is_vague("<p>of those</p>", true) && !is_vague("<p class=\"those\">{{ told }}</p>", true));
}

#[test]
fn texts_for_users_name_the_thing() {
    let vague = Regex::new(VAGUE_IN_TEXTS).unwrap();
    let mut files = Vec::new();
    for folder in FOR_USERS {
        collect(&root().join(folder), &["rs", "html"], &mut files);
    }
    let root = root();
    files.retain(|file| {
        let inside = file.strip_prefix(&root).unwrap();
        !inside.ends_with("tests.rs") && !inside.iter().any(|part| part == "tests")
    });
    files.sort();
    let (mut wrong, mut read) = (Vec::new(), 0);
    for file in files {
        let is_template = file.extension().is_some_and(|extension| extension == "html");
        for (line, text) in texts_for_users(&fs::read_to_string(&file).unwrap(), is_template) {
            read += 1;
            if vague.is_match(&text) {
                wrong.push(format!("{}:{line}: {}", file.display(), text.trim()));
            }
        }
    }
    assert!(read > 3_000, "{read} texts");
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), wrong.join("\n"));
}

/// The file of a test module, and the function in it if the name has one.
fn source_of(name: &str, end_to_end: bool) -> Option<(String, Option<&str>)> {
    let folders: &[&str] = match name.strip_prefix("outside::") {
        _ if end_to_end => &["e2e/tests/e2e"],
        Some(_) => &["tests"],
        None => &["core/tests/it", "tests/it"],
    };
    let read = |module: &str| {
        let paths = folders.iter().map(|folder| root().join(folder).join(module.replace("::", "/")));
        let mut files = paths.flat_map(|path| [path.with_extension("rs"), path.join("mod.rs")]);
        files.find_map(|path| fs::read_to_string(path).ok())
    };
    if let Some(text) = read(name) {
        return Some((text, None));
    }
    let (module, function) = name.rsplit_once("::")?;
    Some((read(module)?, Some(function)))
}

#[test]
fn invariants_cite_tests_that_exist() {
    let text = fs::read_to_string(root().join("INVARIANTS.md")).unwrap();
    let row = Regex::new(r"^\| I(\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$").unwrap();
    let name = Regex::new("`([a-z0-9_:]+)`").unwrap();
    let mut numbers = Vec::new();
    for found in text.lines().filter_map(|line| row.captures(line)) {
        numbers.push(found[1].parse::<usize>().unwrap());
        let tests = &found[2];
        let first_end_to_end = tests.find("e2e ").unwrap_or(tests.len());
        for cited in name.captures_iter(tests) {
            let end_to_end = cited.get(0).unwrap().start() > first_end_to_end;
            let (source, function) = source_of(&cited[1], end_to_end)
                .unwrap_or_else(|| panic!("no test module for {}", &cited[1]));
            let defined = function.is_none_or(|function| source.contains(&format!("fn {function}(")));
            assert!(defined, "{} does not exist", &cited[1]);
        }
    }
    assert_eq!(numbers, (1..=26).collect::<Vec<_>>());
}

/// A law that the page does not name has no invariant, and no word on what it compares with.
#[test]
fn invariants_cite_every_module_of_laws() {
    let text = fs::read_to_string(root().join("INVARIANTS.md")).unwrap();
    let module = Regex::new(r"(?m)^mod (\w+);$").unwrap();
    let is_cited = |name: &String| ["`", "::"].iter().any(|end| text.contains(&format!("`{name}{end}")));
    let mut missing = Vec::new();
    for (folder, prefix) in [("core/tests/it/laws", "laws"), ("tests/it/views/laws", "views::laws")] {
        let list = fs::read_to_string(root().join(folder).join("mod.rs")).unwrap();
        let names: Vec<String> =
            module.captures_iter(&list).map(|found| format!("{prefix}::{}", &found[1])).collect();
        assert!(!names.is_empty(), "{folder} has no modules");
        missing.extend(names.into_iter().filter(|name| !is_cited(name)));
    }
    // Laws of private items are beside them.
    let mut found = 0;
    for folder in SOURCES {
        let mut files = Vec::new();
        collect(&root().join(folder), &["rs"], &mut files);
        for file in files.iter().filter(|file| file.ends_with("laws.rs")) {
            let path = file.strip_prefix(root().join(folder)).unwrap().with_extension("");
            let name = path.to_str().unwrap().replace('/', "::");
            found += 1;
            missing.extend(Some(name).filter(|name| !is_cited(name)));
        }
    }
    assert!(found > 0, "no package has laws beside its code");
    assert!(missing.is_empty(), "INVARIANTS.md does not name {missing:?}");
}

/// A model that asks the code which it judges would agree with any rule.
#[test]
fn independent_models_exist_and_are_independent() {
    let text = fs::read_to_string(root().join("INVARIANTS.md")).unwrap();
    let (_, section) = text.split_once("## Independent models").expect("INVARIANTS.md lists models");
    let name = Regex::new("`(laws::[a-z_:]+|topology)`").unwrap();
    let cited: Vec<&str> = name.captures_iter(section).map(|found| found.get(1).unwrap().as_str()).collect();
    assert!(cited.len() > 20, "{cited:?}");
    for cited in cited {
        let Some((source, function)) = source_of(cited, false) else { panic!("no test module for {cited}") };
        assert!(function.is_none(), "{cited} is no module");
        if cited.ends_with("model") {
            let asks = ["Engine", "QuotaTree"].iter().find(|judged| source.contains(**judged));
            assert!(asks.is_none(), "{cited} asks {asks:?}, which it judges");
        }
    }
}
