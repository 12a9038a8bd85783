"""Our own lists of roles, sciences, animals, machines and other things to write about."""

from making.word_lists import listed

ROLES = listed(
    """painter, composer, novelist, poet, physicist, chemist, botanist, surgeon, lawyer, judge,
    bishop, general, admiral, explorer, architect, engineer, actor, film director, photographer,
    journalist, footballer, cricketer, swimmer, tennis player, cyclist, chess player, boxer,
    economist, historian, philosopher, mathematician, astronomer, geologist, trade unionist,
    diplomat, mayor, member of parliament, singer, pianist, violinist, jazz drummer, sculptor,
    bookseller, teacher, nurse, missionary, aviator, racing driver, farmer and politician,
    shipbuilder, brewer, banker, inventor, linguist, archaeologist, folklorist, choreographer"""
)
PLAYERS = listed(
    """footballer, cricketer, rugby player, ice hockey player, baseball pitcher, basketball
    player, tennis player, golfer, rower, middle-distance runner, swimmer, cyclist, boxer, wrestler,
    fencer, handball goalkeeper"""
)
SPORTS = listed(
    """football, cricket, rugby, ice hockey, baseball, basketball, tennis, rowing, handball,
    volleyball, field hockey, water polo, boxing, cycling, athletics, golf"""
)
ANIMALS = listed(
    """beetle, butterfly, moth, frog, lizard, snake, tree snail, freshwater fish, shark, crab,
    woodpecker, owl, finch, parrot, heron, duck, bat, mouse, fox, deer, antelope, seal, spider,
    dragonfly, tortoise, eagle, hawk, warbler, squirrel, otter"""
)
PLANTS = listed(
    """orchid, fern, oak, pine, palm, cactus, lily, grass, moss, rose, eucalyptus, willow,
    mushroom, maple, acacia, rhododendron, daisy, water lily, heather, sedge"""
)
HABITATS = listed(
    """rainforests, dry grasslands, mountain forests, wetlands, coastal dunes, rivers and lakes,
    coral reefs, pine forests, deserts, tundra, mangroves, farmland, cliffs and rocky islands"""
)
MACHINES = listed(
    """steam engine, diesel engine, windmill, water wheel, sewing machine, printing press,
    telephone, telescope, microscope, refrigerator, jet engine, bicycle, lighthouse lamp,
    mechanical clock, electric motor, transformer, radio receiver, vacuum cleaner, washing
    machine, elevator, submarine, hot air balloon, helicopter, crane, loom, camera, typewriter,
    hydraulic press, nuclear reactor, wind turbine, solar panel, battery, lift bridge, canal
    lock, dredger, tractor, combine harvester, plough, barometer, thermometer, compass,
    gyroscope, piano, organ, violin, cash register, punched card machine, railway signal, gas
    turbine, pump, water filter, kiln, blast furnace, lathe, milling machine, laser, X-ray tube,
    microwave oven, fire extinguisher"""
)
SCIENCES = listed(
    """photosynthesis, plate tectonics, evaporation, magnetism, the tides, natural selection,
    erosion, fermentation, vaccination, inflation, the water cycle, radioactive decay,
    crystal growth, bird migration, digestion, the nervous system, volcanic eruptions, earthquakes,
    glaciers, comets, eclipses, sound waves, refraction of light, superconductivity, antibiotics,
    blood circulation, soil formation, coral bleaching, pollination, animal hibernation,
    the carbon cycle, thunderstorms, supply and demand, trade unions, feudalism, the guild system,
    parliamentary elections, jury trials, copyright, central banking, the gold standard, taxation,
    monasteries, pilgrimage, folk dance, Gothic architecture, fresco painting, opera, jazz, sonnets,
    shorthand, cartography, surveying, navigation by the stars, shipbuilding, papermaking,
    glassmaking, pottery, weaving, dyeing, beekeeping, cheese making, brewing, salt mining,
    coal mining, forestry, crop rotation, irrigation, terraced farming, sheep farming, whaling"""
)
MUSIC = listed(
    """rock, folk, jazz, pop, country, heavy metal, soul, punk rock, electronic, hip hop, blues,
    progressive rock, indie rock, reggae, disco"""
)
SCREEN = listed(
    """drama, comedy, thriller, war, science fiction, horror, musical, documentary, crime, romance,
    adventure, western, animated, mystery, historical"""
)
SHIPS = listed(
    """destroyer, cruiser, battleship, cargo ship, passenger liner, ferry, schooner, frigate,
    lifeboat, whaler, submarine, minesweeper, steamship, trawler, oil tanker, clipper"""
)
SHIP_NAMES = listed(
    """Northern Star, Resolute, Albatross, Morning Light, Endeavour, Queen Charlotte, Vigilant,
    Sea Lark, Fortune, Wanderer, Halcyon, Good Hope, Swallow, Intrepid, Meridian, Providence"""
)
CRIMES = listed(
    """fraud, arson, burglary, kidnapping, murder, smuggling, forgery, bribery, tax evasion,
    theft of paintings, bank robbery, espionage, libel, breach of contract, negligence"""
)
FOODS = listed(
    """fish soup, apple cake, lamb stew, rye bread, potato pancakes, bean salad, roast chicken,
    rice pudding, onion tart, vegetable curry, pumpkin soup, cheese dumplings, baked trout,
    lemon biscuits, mushroom risotto, beef pie, chickpea stew, plum jam, corn bread, noodle soup,
    stuffed peppers, honey cake, pickled cabbage, lentil soup, almond cookies, grilled sardines"""
)
STORY_FIGURES = listed(
    """a fisherman and his daughter, an old clockmaker, two brothers on a farm, a night watchman,
    a travelling musician, a young doctor, a widow who keeps bees, a boy who finds a map,
    a lighthouse keeper, a retired soldier, a train driver, a baker and her rival, a lost dog,
    a shepherd in winter, a librarian with a secret, a sailor who returns home, a gardener,
    a schoolteacher, twin sisters, a detective, a ferryman, a blind painter, a miner's son,
    a thief who changes his mind, a tailor, a girl who wants to fly, a judge and a beggar"""
)
DISASTERS = listed(
    """flood, earthquake, forest fire, storm, landslide, railway accident, drought, blizzard,
    tornado, factory fire, mine explosion, bridge collapse, plane crash, shipwreck, hurricane"""
)
NEWS = listed(
    """a strike at a factory, the opening of a new bridge, a local election, a budget cut, a new
    hospital, the closing of a coal mine, a museum theft, a record harvest, a water shortage, a
    parliamentary vote, a corruption trial, a merger of two banks, a new railway line, a visit of
    the president, a teachers' protest, the discovery of a Roman villa, a rise in house prices,
    a film festival, an outbreak of influenza, the price of wheat, a ban on fishing, a new
    university, a prison escape, a marathon, a power cut, a new airport, an oil spill, a peace
    agreement, a trade dispute, the retirement of a coach, a housing project, a cycling race"""
)
BUILDINGS = listed(
    """castle, cathedral, town hall, railway station, museum, theatre, lighthouse, monastery,
    library, palace, bridge, church, hospital, stadium, opera house, market hall, windmill, abbey,
    prison, observatory, mosque, synagogue, temple, fort, aqueduct, factory, hotel, cinema"""
)
FIELDS = listed(
    """physics, chemistry, medicine, law, history, music, mathematics, theology, philosophy,
    engineering, botany, economics, architecture, literature, agriculture, geology, painting"""
)
COMPANIES = listed(
    """car maker, brewery, shipping company, newspaper, publishing house, airline, bank, railway
    company, steel works, clothing company, toy maker, film studio, record label, watchmaker,
    chocolate maker, bicycle factory, insurance company, radio station, software company,
    department store"""
)
GENERA = listed(
    "Alteria, Brachinus, Corvella, Dorymys, Erinella, Falconia, Graptus, Heliomys, Ixoria, Lamella"
)
EPITHETS = listed(
    "alba, borealis, cristata, elegans, fusca, grandis, minor, montana, nigra, rubra, vulgaris"
)
NOUNS = listed(
    """River, Harbour, Garden, Winter, Stone, Shadow, Summer, Bridge, Mirror, Silver, Lantern,
    Crown, Forest, Letter, Island, Tower, Journey, Evening, Orchard, Thunder, Glass, Paper, Road,
    Window, Feather, Ocean, Morning, Castle, Fire, Snow"""
)
QUALITIES = listed(
    """Lost, Silent, Golden, Broken, Distant, Hidden, Last, First, Blue, Red, Empty, Northern, Old,
    Secret, Burning, Quiet, Falling, Long, Little, Bitter, Bright, Dark, Second, Endless"""
)
START = listed(
    """Ash, Black, Bram, Brook, Castle, Clay, Cold, Crow, Dun, East, Elm, Fair, Glen, Green, Hart,
    Haver, High, Holm, Kings, Lang, Mill, Moor, Nether, New, North, Oak, Old, Red, Rother, Shel,
    South, Stan, Stone, Swan, Thorn, Upper, Wat, West, White, Wil, Win, Wood"""
)
END = listed(
    """bridge, bury, by, combe, dale, den, field, ford, ham, hill, holt, hurst, ley, mere, minster,
    mouth, port, stead, stock, thorpe, ton, well, wick, worth"""
)
