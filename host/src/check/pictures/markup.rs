//! For tests: parses markup, and panics if it is not well formed.

/// An element, as its start tag says.
#[derive(Debug)]
pub(crate) struct Element {
    /// Its name.
    pub(crate) name: String,
    /// Names and values.
    pub(crate) attributes: Vec<(String, String)>,
    /// The names of what it lies in, from outside.
    pub(crate) inside: Vec<String>,
    /// The text right behind the start tag.
    pub(crate) text: String,
}

impl Element {
    /// The attribute of that name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Elements that HTML never closes.
const VOID: [&str; 2] = ["meta", "br"];

/// All elements in the order of their start tags.
///
/// # Panics
/// If tags do not match, an attribute is not quoted or is there twice, or a character should have been escaped.
pub(crate) fn parse(text: &str) -> Vec<Element> {
    let mut rest = text.strip_prefix("<!DOCTYPE html>").unwrap_or(text);
    let (mut open, mut all) = (Vec::<String>::new(), Vec::new());
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>') || open.last().is_some_and(|name| name == "style"), "{before}");
        let (tag, behind) = after.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed");
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut attributes) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
        let mut element =
            Element { name: name.to_owned(), attributes: Vec::new(), inside: open.clone(), text: String::new() };
        while let Some((name, behind)) = attributes.trim_start().split_once("=\"") {
            let (value, behind) = behind.split_once('"').expect("a value ends");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
            assert!(element.get(name).is_none(), "{name} twice in {tag}");
            element.attributes.push((name.to_owned(), unescaped(value)));
            attributes = behind;
        }
        assert_eq!(attributes.trim(), "", "{tag}");
        element.text = unescaped(rest.split('<').next().unwrap_or_default());
        all.push(element);
        if !closed && !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "left open: {open:?}");
    all
}

fn unescaped(text: &str) -> String {
    let known = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    for (at, _) in text.match_indices('&') {
        assert!(known.iter().any(|(name, _)| text[at..].starts_with(name)), "not escaped: {text}");
    }
    known.iter().fold(text.to_owned(), |text, (name, c)| text.replace(name, c))
}

/// Checks a picture or a whole page: each picture has a title, a description and marks, and no number in it is NaN.
///
/// # Panics
/// If a check fails.
pub(crate) fn check_pictures(elements: &[Element]) {
    let starts: Vec<_> = (0..elements.len()).filter(|i| elements[*i].name == "svg").collect();
    assert!(!starts.is_empty(), "no picture");
    for start in starts {
        let depth = elements[start].inside.len();
        let inside: Vec<_> = elements[start + 1..].iter().take_while(|e| e.inside.len() > depth).collect();
        let says = elements[start].get("aria-label").expect("a label");
        assert!(inside[0].name == "title" && !inside[0].text.is_empty() && says.starts_with(&inside[0].text), "{says}");
        assert!(inside[1].name == "desc" && !inside[1].text.is_empty(), "{says}");
        let marks =
            inside.iter().filter(|e| matches!(e.name.as_str(), "rect" | "circle" | "polygon" | "polyline")).count();
        let tips = inside.iter().filter(|e| e.name == "title").count() - 1;
        assert!(marks > 1 && tips > 0, "{says}: {marks} marks, {tips} tips");
        for element in &inside {
            for (name, value) in &element.attributes {
                let numbers = matches!(
                    name.as_str(),
                    "x" | "y" | "x1" | "y1" | "x2" | "y2" | "cx" | "cy" | "r" | "width" | "height" | "points"
                );
                let number = |n: &str| n.parse::<f64>().is_ok_and(|n| n.is_finite() && n.abs() < 1e5);
                assert!(
                    !numbers || value.split([' ', ',']).filter(|n| !n.is_empty()).all(number),
                    "{name}=\"{value}\": {says}"
                );
                assert!(!matches!(name.as_str(), "width" | "height") || !value.starts_with('-'), "{says}: {element:?}");
            }
        }
    }
}
