//! How large a statement may be. Planning cannot be interrupted, takes time and memory that grow faster than the statement, and
//! recurses once for each operator: a few kilobytes of text could hold a thread for minutes, or overflow its stack and with that end
//! the process. Lists of values and columns cost next to nothing, and are not counted.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, Visit, Visitor, visit_relations};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use super::Error;

/// Most operators, set operations, joins and subqueries together.
const MAX_OPERATORS: usize = 1_000;
/// Most times that tables are named.
const MAX_RELATIONS: usize = 128;
/// The same behind `WITH` clauses: one that is named twice, by one that is named twice, and so on, doubles with each.
const MAX_EXPANDED: usize = 1_024;

/// Before parsing: counts what nests.
///
/// # Errors
/// [`Error::Limit`].
pub fn check_text(sql: &str) -> Result<(), Error> {
    // What is no SQL is for the parser to tell.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return Ok(()) };
    let mut operators = 0_usize;
    let mut before = Token::Comma;
    for token in tokens {
        let counts = match &token {
            Token::Whitespace(_) => continue,
            // A sign, as in a list of negative numbers.
            Token::Minus => !matches!(before, Token::Comma | Token::LParen),
            Token::Word(word) => nests(word.keyword),
            Token::Comma | Token::LParen | Token::RParen | Token::Period | Token::SemiColon | Token::Number(..) => {
                false
            }
            Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) => false,
            _ => true,
        };
        operators += usize::from(counts);
        before = token;
    }
    at_most(operators, MAX_OPERATORS, "operators, set operations, joins and subqueries")
}

fn nests(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::AND
            | K::OR
            | K::XOR
            | K::NOT
            | K::IS
            | K::IN
            | K::LIKE
            | K::ILIKE
            | K::BETWEEN
            | K::UNION
            | K::EXCEPT
            | K::INTERSECT
            | K::JOIN
            | K::FROM
            | K::CASE
            | K::COLLATE
    )
}

/// Before planning: counts the tables, those behind a `WITH` once for each time that it is named.
///
/// # Errors
/// [`Error::Limit`].
pub fn check_relations(statement: &DFStatement) -> Result<(), Error> {
    match statement {
        DFStatement::Statement(statement) => {
            let mut bodies = Bodies::default();
            if statement.visit(&mut bodies).is_break() {
                return Ok(());
            }
            at_most(bodies.named.len(), MAX_RELATIONS, "tables")?;
            at_most(bodies.expanded(), MAX_EXPANDED, "tables, once its WITH clauses are expanded")
        }
        DFStatement::Explain(explain) => check_relations(&explain.statement),
        _ => Ok(()),
    }
}

/// What a statement names, in all, and in each body of a `WITH`. Scopes are not told apart: where one name has several bodies, it
/// counts for all of them.
#[derive(Debug, Default)]
struct Bodies {
    named: Vec<String>,
    bodies: HashMap<String, Vec<String>>,
}

impl Visitor for Bodies {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
            let named = self.bodies.entry(cte.alias.name.value.to_lowercase()).or_default();
            visit_relations(&cte.query, |relation| {
                named.push(last_part(relation));
                ControlFlow::<()>::Continue(())
            })?;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.named.push(last_part(relation));
        ControlFlow::Continue(())
    }
}

impl Bodies {
    fn expanded(&self) -> usize {
        let mut sizes = HashMap::new();
        self.named.iter().fold(0, |sum, name| sum.saturating_add(self.size(name, &mut sizes)))
    }

    fn size<'a>(&'a self, name: &'a str, sizes: &mut HashMap<&'a str, usize>) -> usize {
        let Some(named) = self.bodies.get(name) else { return 1 };
        if let Some(size) = sizes.get(name) {
            return *size;
        }
        // What a recursive body says of itself.
        sizes.insert(name, 1);
        let size = named.iter().fold(1_usize, |sum, name| sum.saturating_add(self.size(name, sizes)));
        sizes.insert(name, size);
        size
    }
}

fn last_part(name: &ObjectName) -> String {
    name.0.last().map(|part| part.to_string().trim_matches('"').to_lowercase()).unwrap_or_default()
}

fn at_most(found: usize, most: usize, what: &str) -> Result<(), Error> {
    if found > most {
        return Err(Error::Limit(format!("the statement has more than {most} {what}; split it into several")));
    }
    Ok(())
}
