"""What each prompt asks for, and how the answer begins.

A genre has instructions and openings; one of each is drawn for every prompt. The opening is given
to the model as the start of its own answer, and so belongs to the text: it keeps the model from
chatting and brings in the fixed phrases of encyclopedias and newspapers. Names in braces are filled
in by `making.prompts`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Genre:
    """One kind of text."""

    name: str
    instructions: list[str]
    openings: list[str]


GENRES = [
    Genre(
        "biography",
        [
            "Write a biography of {person}, {an_adjective} {role} born in {year}.",
            "Write an encyclopedia article about the {adjective} {role} {person}.",
        ],
        [
            "{person} (born {day} {month} {year}) was {an_adjective} {role}",
            "{person} ({day} {month} {year} – {month2} {later}) was {an_adjective} {role} who",
            "{person} was born in {city}, {country}, on {day} {month} {year}, the {child} of",
            "{person} was born in {year} in {city} and studied {field} at the University of",
            "Born in {city} in {year}, {person} was {an_adjective} {role} best known for",
            "After the death of {his} father in {year}, {person} moved to {city}, where {he}",
            "{surname} was educated at {city} Grammar School and joined the",
        ],
    ),
    Genre(
        "sportsman",
        ["Write an encyclopedia article about the {adjective} {player} {person}."],
        [
            "{person} (born {day} {month} {modern}) is {an_adjective} {player} who played for",
            "{person} represented {country} as a {player} at the {games} Olympics",
            "In the {season} season, {surname} scored {number} goals in",
            "{surname} began {his} career with {city} in {modern}, where {he}",
        ],
    ),
    Genre(
        "match report",
        [
            "Write a match report about the {sport} final between {city} and {city2} in {year}.",
            "Write a newspaper report about a {sport} match between {city} and {city2}.",
        ],
        [
            "{city} beat {city2} {goals}–{goals2} on {weekday} to win",
            "On {day} {month} {year}, {city} played {city2} in the final of the",
            "The {year} final was played between {city} and {city2} at",
            "In the second half, {surname} scored",
            "{city} came from behind to defeat {city2} in front of a crowd of {thousands},000",
        ],
    ),
    Genre(
        "season",
        ["Write an article about the {season} season of the {city} {sport} club."],
        [
            "The {season} season was the {nth} season in the history of {city}",
            "During the {season} season, {city} finished {nth} in the league",
            "{city} began the season with",
        ],
    ),
    Genre(
        "town",
        [
            "Write an encyclopedia article about {town}, a town in {country}.",
            "Write the history of {town}, a small town near {city}, {country}.",
        ],
        [
            "{town} is a town in {country}, about {number} kilometres {direction} of {city}",
            "{town} is a village and civil parish in",
            "The town of {town} was founded in {year} by",
            "The history of {town} begins in the {century} century, when",
            "At the {census} census, {town} had a population of",
            "The first people to settle in {town} were",
        ],
    ),
    Genre(
        "river",
        ["Write an encyclopedia article about the River {town_stem} in {country}."],
        [
            "The {town_stem} is a river in the {direction} of {country}. It rises in",
            "The River {town_stem} flows through",
            "The {town_stem} River is {number} kilometres long and",
            "Lake {town_stem} is a lake in the {direction} of {country}, near",
            "Mount {town_stem} is a mountain in {country} with an elevation of",
        ],
    ),
    Genre(
        "building",
        ["Write an encyclopedia article about the {building} of {city}, {country}."],
        [
            "The {building} was built between {year} and {later} by",
            "{town} {building} is a {building} in {city}, {country}. It was designed by",
            "The {building} stands on the {direction} side of",
            "Construction of the {building} began in {year} and",
        ],
    ),
    Genre(
        "school",
        ["Write an encyclopedia article about {town} School in {city}, {country}."],
        [
            "{town} School is a secondary school in {city}, {country}. It was founded in {year} by",
            "The University of {town} was established in {year} as",
            "The school was opened in {month} {year} with {number} pupils",
        ],
    ),
    Genre(
        "battle",
        ["Write an encyclopedia article about the Battle of {town} in {early}."],
        [
            "The Battle of {town} was fought on {day} {month} {early} between",
            "The Battle of {town} took place in {early} during the",
            "In the spring of {early}, the {adjective} army under General {surname} advanced",
            "The siege of {town} began on {day} {month} {early}, when",
        ],
    ),
    Genre(
        "war unit",
        ["Write the history of {an_adjective} infantry regiment that was raised in {early}."],
        [
            "The {nth} Regiment was an infantry regiment of the {adjective} Army. It was raised in",
            "The regiment was formed in {city} in {month} {early} and",
        ],
    ),
    Genre(
        "ship",
        ["Write an encyclopedia article about the {adjective} {ship} {ship_name}."],
        [
            "{ship_name} was {an_adjective} {ship} launched in {year} at",
            "The {ship_name} was a {ship} built for the",
            "On {day} {month} {year}, the {ship} {ship_name} left {city} with",
        ],
    ),
    Genre(
        "railway",
        ["Write an encyclopedia article about the railway line from {city} to {city2}."],
        [
            "The {city}–{city2} railway is a railway line in {country}. It was opened in {year}",
            "{town} railway station is a station on the line between {city} and {city2}. It",
            "The line was built by the {city} and {city2} Railway Company and",
            "The road runs from {city} to {city2} through",
        ],
    ),
    Genre(
        "album",
        ["Write an encyclopedia article about {title}, a {modern} {music} album."],
        [
            "{title} is the {nth} studio album by the {adjective} {music} band",
            '"{title}" is a song by {adjective} singer {person} from {his} {nth} album',
            "{title} was recorded in {city} in {modern} and released on {day} {month}",
            "The album received positive reviews from",
            "{person} formed the band in {city} in {modern} with",
        ],
    ),
    Genre(
        "film",
        ["Write an encyclopedia article about the {modern} {screen} film {title}."],
        [
            "{title} is a {modern} {adjective} {screen} film directed by {person} and starring",
            "The film tells the story of",
            "{title} was released in {month} {modern} and",
            "Filming began in {city} in {month} {modern}, with",
        ],
    ),
    Genre(
        "television",
        ["Write an encyclopedia article about {title}, {an_adjective} {screen} television series."],
        [
            "{title} is {an_adjective} {screen} series that was first broadcast in {modern}",
            "In the {nth} episode,",
            "The series is set in {city} and follows",
        ],
    ),
    Genre(
        "novel",
        ["Write an encyclopedia article about {title}, a novel by {person}."],
        [
            "{title} is a novel by the {adjective} writer {person}, first published in {year}",
            "The novel is set in {city} in the {century} century and tells",
            "{title} is a play in {few} acts by {person}. It was first performed in",
        ],
    ),
    Genre(
        "species",
        ["Write an encyclopedia article about a species of {animal} found in {country}."],
        [
            "{latin} is a species of {animal} in the family",
            "The {town_stem} {animal} is a species of {animal} that is found in",
            "The {town_stem} {animal} lives in the {habitat} of {country} and feeds on",
            "The {animal} is {number} centimetres long and has",
            "The female lays {few} eggs",
        ],
    ),
    Genre(
        "plant",
        ["Write an encyclopedia article about a species of {plant} from {country}."],
        [
            "{latin} is a species of {plant} native to the {habitat} of {country}. It",
            "The {plant} grows to a height of",
            "The leaves are",
            "The species was first described in {year} by the {adjective} botanist",
        ],
    ),
    Genre(
        "machine",
        ["Explain how a {machine} works.", "Write an article about the history of the {machine}."],
        [
            "A {machine} is a device that",
            "The {machine} was invented in the {century} century by",
            "The first {machine} was built in {year} by {person}, {an_adjective} engineer who",
            "Inside the {machine},",
            "The main parts of a {machine} are",
        ],
    ),
    Genre(
        "idea",
        [
            "Write an encyclopedia article about {science}.",
            "Write about the history of {science} in {country}.",
        ],
        [
            "In {country}, the history of {science} goes back to",
            "The study of {science} began in",
            "The term was first used in {year} by",
            "By the {century} century,",
            "There are {few} main kinds of",
            "One of the most important",
            "Scientists at the University of {city} have",
        ],
    ),
    Genre(
        "news",
        ["Write a newspaper report about {news} in {city}, {country}."],
        [
            "{city} – The government of {country} said on {weekday} that",
            "{city} – Police in {city} said on {weekday} that",
            "The mayor of {city}, {person}, announced on {weekday} that",
            "More than {thousands},000 people",
            "According to a report published on {weekday},",
            "{number} per cent of",
            "A spokesman for the {company} said",
            "Prices in {city} rose by {few} per cent in {month}, the",
        ],
    ),
    Genre(
        "disaster",
        ["Write a newspaper report about a {disaster} near {city}, {country}, in {year}."],
        [
            "At least {number} people were killed and",
            "A {disaster} struck {city} on {day} {month} {year},",
            "The {year} {disaster} was one of the worst in the history of {country}. It",
            "Rescue workers in {city}",
        ],
    ),
    Genre(
        "court",
        ["Write an article about a court case about {crime} in {city}, {country}, in {year}."],
        [
            "In {year}, {person} was charged with {crime} after",
            "The trial of {person} began on {day} {month} {year} in {city}. The prosecution",
            "The Supreme Court of {country} ruled on {weekday} that",
            "The judge said that",
        ],
    ),
    Genre(
        "company",
        ["Write an encyclopedia article about {an_adjective} {company} founded in {year}."],
        [
            "{surname} & Sons was {an_adjective} {company} based in {city}. Founded in {year}",
            "The company was founded in {year} by {person} in {city} and",
            "By {later}, the company employed {number} people and",
        ],
    ),
    Genre(
        "politics",
        ["Write an encyclopedia article about the {year} election in {country}."],
        [
            "The {year} election was held in {country} on {day} {month} {year}. The",
            "The {adjective} Labour Party was a political party in {country}, founded in {year} by",
            "{surname} was elected mayor of {city} in {year} with {number} per cent of the vote",
            "The {year} treaty between {country} and {country2} was signed in {city}. It",
            "King {man} of {country} came to the throne in {early} after",
        ],
    ),
    Genre(
        "story",
        ["Write a short story about {figure} in {country}."],
        [
            "One morning in {month},",
            "{forename} had lived in {city} for {few} years when",
            "It was a cold evening in {city}, and",
            "When {forename} opened the door,",
            "The old man looked at",
            "In the year {year}, in a village near {city}, there lived",
            '"I have never seen',
            "{forename} walked slowly along",
        ],
    ),
    Genre(
        "recipe",
        ["Write about {food}, a dish from {city}, {country}, and how it is cooked."],
        [
            "{city} is known for its {food}, which is made with",
            "To make {food}, the cook first",
            "The dish is traditionally eaten",
            "In {country}, {food} is served with",
        ],
    ),
    Genre(
        "travel",
        [
            "Write a travel article about {city}, {country}.",
            "Describe a journey to {city} in {year}.",
        ],
        [
            "The city of {city} lies",
            "Visitors to {city} can",
            "The old town of {city} has",
            "We arrived in {city} on a",
            "The climate of {city} is",
            "The economy of {city} is based on",
        ],
    ),
    Genre(
        "archaeology",
        ["Write an article about an excavation near {town}, {country}, in {year}."],
        [
            "In {year}, archaeologists near {town} found",
            "The site was discovered in {year} by {person}, who",
            "The excavations at {town}, led by {person} of the University of {city},",
        ],
    ),
    Genre(
        "religion and custom",
        ["Write an encyclopedia article about a festival in {town}, {country}."],
        [
            "The festival of {town} is held every year in {month} and",
            "Every year on {day} {month}, the people of {town}",
            "The church of St {forename} in {town} was built in the {century} century and",
            "The custom is first mentioned in",
        ],
    ),
]
