// Sphinx finds pages. Here headings are found, too, by their words and those of their page's title; and what tells how
// to use ticketlock comes before what tells how it was made.

const BEHIND = /^(CHANGELOG|CONTRIBUTING|examples\/|spec\/|docs\/(decisions\/|proof|threat-model))/;

// Above what Sphinx gives to a page, or to a name of the reference; higher, the more of the heading was asked, and if it
// is the title of its page.
const HEADING = 25;
const EXACTLY = 10;
const TITLE = 6;
// Words of a question that no heading answers, as stems.
const ASKING = new Set(["can", "do", "doe", "happen", "how", "i", "my", "what", "when"]);

const wordsOf = text => {
  const stemmer = new Stemmer();
  const words = splitQuery(text.toLowerCase()).filter(each => !stopwords.has(each));
  return new Set(words.map(each => stemmer.stemWord(each)));
};

const headingsOf = everyWord => {
  const asked = new Set([...everyWord].filter(each => !ASKING.has(each)));
  const {alltitles, docnames, filenames, titles} = Search._index;
  return Object.entries(alltitles).flatMap(([heading, places]) => {
    const words = wordsOf(heading);
    const inHeading = [...asked].filter(each => words.has(each)).length;
    if (inHeading === 0) return [];
    return places.flatMap(([page, anchor]) => {
      const ofPage = wordsOf(titles[page]);
      const known = inHeading + [...asked].filter(each => !words.has(each) && ofPage.has(each)).length / 2;
      if (known / asked.size < 0.5) return [];
      const isTitle = titles[page] === heading;
      const score = HEADING * known / asked.size + EXACTLY * inHeading / words.size + (isTitle ? TITLE : 0);
      const [shown, to] = isTitle ? [heading, ""] : [`${titles[page]} > ${heading}`, `#${anchor}`];
      return [[docnames[page], shown, to, null, score, filenames[page], SearchResultKind.title]];
    });
  });
};

// Furo loads this after Sphinx's own script.
const pagesOf = Search.performTermsSearch;
Search.performTermsSearch = (asked, excluded) => [...pagesOf(asked, excluded), ...headingsOf(asked)];
Scorer.score = ([page, , , , score]) => (BEHIND.test(page) ? score / 10 : score);
