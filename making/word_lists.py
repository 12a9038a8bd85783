"""Our own lists of countries, names and things, from which the prompts are put together."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Country:
    """Words that belong together, so that a text about one place keeps to it."""

    name: str
    adjective: str
    cities: list[str]
    men: list[str]
    women: list[str]
    surnames: list[str]


def listed(text: str) -> list[str]:
    """The items of a list written with commas."""
    return [" ".join(item.split()) for item in text.split(",")]


def _country(name: str, adjective: str, *lists: str) -> Country:
    cities, men, women, surnames = map(listed, lists)
    return Country(name, adjective, cities, men, women, surnames)


COUNTRIES = [
    _country(
        "England",
        "English",
        "London, Bristol, Leeds, Norwich, Plymouth, York, Durham, Exeter",
        "William, George, Henry, Arthur, Edward, Walter, Frank, Alan",
        "Mary, Alice, Florence, Margaret, Dorothy, Helen, Ruth, Emma",
        "Carter, Hughes, Barlow, Whitfield, Turner, Fletcher, Marsh, Holloway",
    ),
    _country(
        "Scotland",
        "Scottish",
        "Glasgow, Edinburgh, Aberdeen, Dundee, Inverness, Perth, Stirling",
        "James, Duncan, Alexander, Robert, Hamish, Ian, Angus",
        "Fiona, Agnes, Janet, Isobel, Catriona, Jean, Morag",
        "MacLeod, Fraser, Campbell, Stewart, Murray, Sinclair, Douglas",
    ),
    _country(
        "Ireland",
        "Irish",
        "Dublin, Cork, Galway, Limerick, Waterford, Sligo",
        "Patrick, Sean, Michael, Brendan, Liam, Declan",
        "Mary, Bridget, Nora, Kathleen, Maeve, Aoife",
        "Murphy, Kelly, Byrne, Doyle, Gallagher, Nolan",
    ),
    _country(
        "the United States",
        "American",
        "Chicago, Boston, Denver, Seattle, Atlanta, Detroit, Philadelphia, Baltimore, St. Louis",
        "John, Charles, Thomas, Samuel, David, Richard, Joseph, Daniel",
        "Elizabeth, Sarah, Martha, Susan, Linda, Barbara, Grace, Clara",
        "Miller, Johnson, Davis, Parker, Thompson, Bennett, Reed, Coleman",
    ),
    _country(
        "Canada",
        "Canadian",
        "Toronto, Montreal, Halifax, Winnipeg, Calgary, Vancouver, Ottawa",
        "Donald, Gordon, Pierre, Keith, Andrew, Luc",
        "Anne, Louise, Nancy, Carol, Claire, Heather",
        "Tremblay, MacDonald, Roy, Wilson, Gagnon, Fraser",
    ),
    _country(
        "Australia",
        "Australian",
        "Sydney, Melbourne, Brisbane, Perth, Adelaide, Hobart, Darwin",
        "Bruce, Peter, Ian, Geoffrey, Scott, Neil",
        "Joan, Sheila, Kate, Judith, Karen, Olivia",
        "Taylor, Mitchell, Walsh, Cooper, Hayes, Morrison",
    ),
    _country(
        "New Zealand",
        "New Zealand",
        "Auckland, Wellington, Christchurch, Dunedin, Hamilton, Nelson",
        "Colin, Graham, Brian, Wiremu, Stuart, Allan",
        "Helen, Margaret, Hana, Lynne, Rachel, Jill",
        "Campbell, Harris, Ngata, Cameron, Reid, Shaw",
    ),
    _country(
        "France",
        "French",
        "Paris, Lyon, Marseille, Bordeaux, Lille, Nantes, Toulouse, Rouen",
        "Jean, Pierre, Louis, Henri, Marcel, Jacques, Antoine",
        "Marie, Jeanne, Claire, Simone, Hélène, Sophie, Camille",
        "Lefebvre, Moreau, Dubois, Girard, Fournier, Mercier, Blanchard",
    ),
    _country(
        "Germany",
        "German",
        "Berlin, Hamburg, Munich, Cologne, Leipzig, Dresden, Bremen, Stuttgart",
        "Karl, Friedrich, Hans, Wilhelm, Otto, Ernst, Heinrich",
        "Anna, Elisabeth, Greta, Ursula, Ingrid, Clara, Hannah",
        "Schneider, Weber, Hoffmann, Keller, Vogel, Lang, Brandt",
    ),
    _country(
        "Italy",
        "Italian",
        "Rome, Milan, Naples, Turin, Venice, Florence, Genoa, Bologna",
        "Giovanni, Marco, Luigi, Paolo, Antonio, Carlo",
        "Maria, Lucia, Francesca, Elena, Rosa, Giulia",
        "Rossi, Ferrari, Conti, Moretti, Galli, Marino",
    ),
    _country(
        "Spain",
        "Spanish",
        "Madrid, Barcelona, Seville, Valencia, Bilbao, Granada, Zaragoza",
        "Juan, Carlos, Miguel, Fernando, Rafael, Javier",
        "Carmen, Isabel, Pilar, Teresa, Lucia, Elena",
        "Garcia, Navarro, Ortega, Molina, Castillo, Vega",
    ),
    _country(
        "Portugal",
        "Portuguese",
        "Lisbon, Porto, Braga, Coimbra, Faro, Évora",
        "João, Manuel, Rui, Pedro, Jorge",
        "Maria, Ana, Beatriz, Inês, Teresa",
        "Silva, Costa, Almeida, Ferreira, Carvalho",
    ),
    _country(
        "the Netherlands",
        "Dutch",
        "Amsterdam, Rotterdam, Utrecht, The Hague, Leiden, Groningen",
        "Jan, Pieter, Willem, Hendrik, Cornelis",
        "Anna, Johanna, Maria, Saskia, Femke",
        "de Vries, Bakker, van Dijk, Visser, Mulder",
    ),
    _country(
        "Sweden",
        "Swedish",
        "Stockholm, Gothenburg, Malmö, Uppsala, Umeå, Lund",
        "Erik, Lars, Gustav, Nils, Anders, Sven",
        "Karin, Astrid, Ingrid, Eva, Kristina, Maja",
        "Lindberg, Johansson, Nyström, Holm, Sandberg, Ek",
    ),
    _country(
        "Norway",
        "Norwegian",
        "Oslo, Bergen, Trondheim, Stavanger, Tromsø, Bodø",
        "Ole, Knut, Harald, Einar, Magnus",
        "Ingrid, Solveig, Marit, Liv, Sigrid",
        "Hansen, Dahl, Berg, Haugen, Solberg",
    ),
    _country(
        "Poland",
        "Polish",
        "Warsaw, Kraków, Gdańsk, Poznań, Wrocław, Lublin",
        "Jan, Stanisław, Adam, Tadeusz, Piotr",
        "Maria, Zofia, Anna, Helena, Ewa",
        "Kowalski, Nowak, Zieliński, Lewandowski, Mazur",
    ),
    _country(
        "Russia",
        "Russian",
        "Moscow, Saint Petersburg, Kazan, Samara, Omsk, Perm",
        "Ivan, Nikolai, Alexei, Dmitri, Sergei, Mikhail",
        "Anna, Olga, Tatiana, Natalia, Vera, Irina",
        "Ivanov, Petrov, Sokolov, Volkov, Orlov, Morozov",
    ),
    _country(
        "Greece",
        "Greek",
        "Athens, Thessaloniki, Patras, Larissa, Heraklion, Volos",
        "Nikos, Georgios, Dimitris, Andreas, Kostas",
        "Eleni, Maria, Sofia, Katerina, Anna",
        "Papadakis, Georgiou, Nikolaidis, Pappas, Vlachos",
    ),
    _country(
        "Turkey",
        "Turkish",
        "Istanbul, Ankara, Izmir, Bursa, Adana, Konya",
        "Mehmet, Mustafa, Ahmet, Emre, Kemal",
        "Ayşe, Fatma, Leyla, Zeynep, Elif",
        "Yılmaz, Demir, Kaya, Arslan, Aydın",
    ),
    _country(
        "Egypt",
        "Egyptian",
        "Cairo, Alexandria, Luxor, Aswan, Suez, Giza",
        "Ahmed, Hassan, Omar, Youssef, Khaled",
        "Fatima, Layla, Nadia, Mona, Amina",
        "Mahmoud, Farouk, Nasser, Mansour, Saleh",
    ),
    _country(
        "Nigeria",
        "Nigerian",
        "Lagos, Ibadan, Kano, Abuja, Enugu, Benin City",
        "Chinedu, Emeka, Tunde, Ibrahim, Segun",
        "Ngozi, Amaka, Funke, Aisha, Chioma",
        "Okafor, Adeyemi, Bello, Eze, Okonkwo",
    ),
    _country(
        "Kenya",
        "Kenyan",
        "Nairobi, Mombasa, Kisumu, Nakuru, Eldoret",
        "Joseph, Daniel, Peter, Kamau, David",
        "Grace, Wanjiru, Faith, Akinyi, Mercy",
        "Mwangi, Otieno, Kipchoge, Kariuki, Njoroge",
    ),
    _country(
        "South Africa",
        "South African",
        "Cape Town, Johannesburg, Durban, Pretoria, Bloemfontein",
        "Johan, Thabo, Sipho, Pieter, Mandla",
        "Nomsa, Thandi, Annelie, Lerato, Zanele",
        "Botha, Dlamini, Nkosi, van der Merwe, Khumalo",
    ),
    _country(
        "India",
        "Indian",
        "Mumbai, Delhi, Kolkata, Chennai, Hyderabad, Pune, Jaipur, Lucknow",
        "Rajesh, Anil, Vijay, Suresh, Arjun, Ravi",
        "Lakshmi, Priya, Sunita, Meera, Kavita, Asha",
        "Sharma, Patel, Gupta, Iyer, Reddy, Banerjee",
    ),
    _country(
        "China",
        "Chinese",
        "Beijing, Shanghai, Guangzhou, Nanjing, Wuhan, Chengdu, Tianjin",
        "Wei, Jun, Ming, Hao, Jian",
        "Li, Mei, Xiu, Yan, Fang",
        "Wang, Zhang, Chen, Liu, Zhao",
    ),
    _country(
        "Japan",
        "Japanese",
        "Tokyo, Osaka, Kyoto, Nagoya, Sapporo, Hiroshima, Kobe",
        "Hiroshi, Kenji, Takeshi, Akira, Kazuo",
        "Yoko, Keiko, Haruka, Michiko, Naomi",
        "Tanaka, Suzuki, Yamamoto, Sato, Nakamura",
    ),
    _country(
        "Brazil",
        "Brazilian",
        "Rio de Janeiro, São Paulo, Salvador, Recife, Brasília, Manaus",
        "Paulo, José, Roberto, Marcelo, Eduardo",
        "Ana, Fernanda, Juliana, Lúcia, Patrícia",
        "Santos, Oliveira, Pereira, Souza, Barbosa",
    ),
    _country(
        "Mexico",
        "Mexican",
        "Mexico City, Guadalajara, Monterrey, Puebla, Veracruz, Oaxaca",
        "Luis, Alejandro, Ricardo, Diego, Ernesto",
        "Guadalupe, Rosa, Adriana, Marta, Silvia",
        "Hernández, Ramírez, Torres, Mendoza, Aguilar",
    ),
    _country(
        "Argentina",
        "Argentine",
        "Buenos Aires, Rosario, Córdoba, Mendoza, La Plata, Salta",
        "Hugo, Martín, Jorge, Oscar, Daniel",
        "Mercedes, Alicia, Valeria, Norma, Cecilia",
        "Fernández, Romero, Acosta, Suárez, Peralta",
    ),
    _country(
        "Hungary",
        "Hungarian",
        "Budapest, Debrecen, Szeged, Pécs, Győr",
        "László, István, Ferenc, György, Sándor",
        "Katalin, Ilona, Erzsébet, Judit, Zsuzsa",
        "Nagy, Kovács, Szabó, Tóth, Varga",
    ),
]

MONTHS = listed(
    "January, February, March, April, May, June, July, August, September, October, November, "
    "December"
)
DIRECTIONS = listed("north, south, east, west, north-east, north-west, south-east, south-west")
WEEKDAYS = listed("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
ORDINALS = listed("first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth")
FEW = listed("two, three, four, five, six, seven, eight, nine, ten, twelve")
CENTURIES = listed("12th, 13th, 14th, 15th, 16th, 17th, 18th, 19th, 20th")
