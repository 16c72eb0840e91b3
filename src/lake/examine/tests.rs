use object_store::Error as StoreError;

use super::*;

async fn examined(options: &Options, dir: &FilePath) -> Vec<Step> {
    let mut steps = Vec::new();
    examine(options, dir, &mut |step| steps.push(step)).await;
    steps
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_passes_and_is_left_as_it_was() {
    let dir = tempfile::tempdir().expect("should have a directory");
    let steps = examined(&Options::default(), dir.path()).await;
    let failed: Vec<_> = steps.iter().filter(|step| step.outcome.is_err()).collect();
    assert!(failed.is_empty() && steps.len() == 7, "{steps:?}");
    let said = |name| {
        steps.iter().find(|step| step.name == name).map(|step| step.outcome.as_ref().expect("should pass").as_str())
    };
    assert_eq!(said("read it back"), Some("2000 rows in version 2"));
    assert_eq!(std::fs::read_dir(dir.path().join("lake")).expect("should list").count(), 0);
}

#[tokio::test]
async fn memory_is_not_examined() {
    let options = Options { url: Some("memory:///lake".to_owned()), ..Options::default() };
    let steps = examined(&options, FilePath::new("/nowhere")).await;
    let error = steps[0].outcome.as_ref().expect_err("should be refused");
    assert!(steps.len() == 1 && error.to_string().contains("nothing to examine"), "{error}");
}

#[test]
fn every_failure_of_a_store_says_what_to_do() {
    let source = || "403".into();
    let path = || "p".to_owned();
    for (error, word) in [
        (StoreError::PermissionDenied { path: path(), source: source() }, "credentials"),
        (StoreError::NotFound { path: path(), source: source() }, "bucket"),
        (StoreError::Generic { store: "s3", source: source() }, "endpoint"),
    ] {
        let error = Error::Unproven(Arc::new(Error::store("creating", "p", error)));
        assert!(advice(&error).contains(word), "{error}: {}", advice(&error));
    }
}
