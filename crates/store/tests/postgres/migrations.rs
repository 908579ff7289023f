//! The schema: made once, by whoever comes first, and known when it is another one.

use runyard_store::postgres::{Options, check_migrations, migrate};
use runyard_store::store::{Error, Store};
use runyard_testbed::shared;

use super::link::{Session, open};

#[test]
fn many_who_start_at_once_make_one_schema() {
    let url = shared().fresh_database();
    let options = Options::new(&*url);
    assert!(check_migrations(&options).unwrap() > 0);
    assert!(check_migrations(&options).unwrap() > 0, "to look changes nothing");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| migrate(&options).unwrap());
        }
    });
    assert_eq!(check_migrations(&options).unwrap(), 0);
    assert_eq!(open(&url).load(1).unwrap().meta.epoch, 1);
}

#[test]
fn a_database_of_a_later_version_is_refused() {
    let url = shared().fresh_database();
    drop(open(&url));
    Session::open(&url).run("INSERT INTO migrations SELECT max(version) + 1, 0 FROM migrations");
    for refused in [migrate(&Options::new(&*url)).unwrap_err(), check_migrations(&Options::new(&*url)).unwrap_err()] {
        assert!(matches!(refused, Error::TooNew { found, known } if found == known + 1), "{refused}");
    }
}

#[test]
fn a_step_that_was_made_by_another_text_is_refused() {
    let url = shared().fresh_database();
    drop(open(&url));
    Session::open(&url).run("UPDATE migrations SET checksum = 7");
    assert!(matches!(migrate(&Options::new(&*url)), Err(Error::Damaged { .. })));
}

#[test]
fn another_programs_tables_are_left_alone() {
    let url = shared().fresh_database();
    Session::open(&url).run("CREATE TABLE tasks(theirs integer)");
    assert!(matches!(migrate(&Options::new(&*url)), Err(Error::Damaged { .. })));
}

#[test]
fn two_schemas_of_one_database_are_two_stores() {
    let url = shared().fresh_database();
    Session::open(&url).run("CREATE SCHEMA a; CREATE SCHEMA b");
    let of = |schema: &str| open(&format!("{url}?options=-csearch_path%3D{schema}"));
    let (mut a, mut b) = (of("a"), of("b"));
    assert_eq!(a.load(1).unwrap().meta.epoch, 1);
    assert_eq!(a.load(1).unwrap().meta.epoch, 2);
    assert_eq!(b.load(1).unwrap().meta.epoch, 1);
}
