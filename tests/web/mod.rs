//! The built daemon as a web server: HTTPS, slow clients, and the dashboard in a browser.

mod browser;
mod console;
mod every_page;
mod https;
mod patience;
mod people;
mod phone;
mod webdriver;
