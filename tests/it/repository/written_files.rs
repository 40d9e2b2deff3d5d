//! The message about a file that is stale.

use crate::fixtures::written_files::first_difference;

#[test]
fn first_difference_is_named() {
    assert_eq!(first_difference("a\nb\n", "a\nc\n"), "line 2: \"b\", wanted \"c\"");
    assert_eq!(first_difference("", "a\n"), "line 1: no line, wanted \"a\"");
}
