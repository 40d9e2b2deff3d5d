//! Users whose names have characters beyond ASCII ask the group of views.

use crate::shell::views::{GROUP, Views, names};
use serde_json::json;

/// The API server passes on names as they are: rights and what is one's own follow from the whole name.
#[tokio::test]
async fn users_with_names_beyond_ascii_are_heard() {
    let views = Views::start().await;
    views.publish();
    let headers = [
        ("x-remote-user", "ünï"),
        ("x-remote-group", "größe"),
        ("x-remote-extra-team", "数据"),
        ("accept", "application/json"),
    ];
    let path = format!("{GROUP}/workloadviews?fieldSelector=mine%3Dtrue");
    let answer = views.server.get(&path, Some(&views.proxy), &headers).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(names(&answer.json()), ["w-c"]);
    let reviews = views.server.reviews.0.lock().unwrap().clone();
    assert!(!reviews.is_empty());
    for review in reviews {
        assert_eq!(
            (&review["user"], &review["groups"], &review["extra"]),
            (&json!("ünï"), &json!(["größe", "system:authenticated"]), &json!({"team": ["数据"]}))
        );
    }
}
