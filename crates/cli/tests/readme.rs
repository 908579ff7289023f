//! The README's five-minute tour and guides, typed in as they stand there.

mod page;
#[allow(dead_code)]
mod yard;

#[test]
fn the_tour_does_what_it_says() {
    page::run_through(page::part(&page::read("README.md"), "## Five minutes"), 8, 6);
}

/// The issue: a chat bot with interrupt and collect in ten lines of curl.
#[test]
fn the_chat_bot_of_the_guide_does_what_it_says() {
    let guide = page::read("docs/sessions.md");
    let bot = page::part(&guide, "## A chat bot in ten lines");
    let lines = bot.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the bot's lines");
    assert!(lines.lines().count() <= 10, "{} lines", lines.lines().count());
    page::run_through(&guide, 8, 6);
}

/// The issue: `ps`, `cat` and `ls` tell a person the truth at any moment.
#[test]
fn the_guide_to_processes_shows_what_is_there() {
    page::run_through(&page::read("docs/guides/processes.md"), 9, 8);
}

#[test]
fn the_guide_to_webhooks_does_what_it_says() {
    page::run_through(&page::read("docs/guides/webhooks.md"), 7, 1);
}

#[test]
fn the_guide_to_schedules_does_what_it_says() {
    page::run_through(&page::read("docs/guides/schedules.md"), 6, 5);
}
