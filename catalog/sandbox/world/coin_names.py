"""Well-known coins: slug, symbol, first month, name; in the order of their usual rank.

Belongs here: facts about coins that exist. Does not: invented coins, ranks, tracking (coins.py).
The month is that of first trading, roughly; `-` when that was before the catalog begins (October
2016).
"""

from typing import NamedTuple

_TABLE = """
bitcoin btc - Bitcoin
ethereum eth - Ethereum
tether usdt - Tether
ripple xrp - XRP
binancecoin bnb 2017-07 BNB
solana sol 2020-04 Solana
usd-coin usdc 2018-10 USDC
dogecoin doge - Dogecoin
tron trx 2017-09 TRON
cardano ada 2017-10 Cardano
hyperliquid hype 2024-11 Hyperliquid
chainlink link 2017-09 Chainlink
avalanche-2 avax 2020-09 Avalanche
stellar xlm - Stellar
sui sui 2023-05 Sui
bitcoin-cash bch 2017-08 Bitcoin Cash
hedera-hashgraph hbar 2019-09 Hedera
litecoin ltc - Litecoin
leo-token leo 2019-05 LEO Token
shiba-inu shib 2020-08 Shiba Inu
the-open-network ton 2021-08 Toncoin
crypto-com-chain cro 2018-12 Cronos
polkadot DOT 2020-08 Polkadot
dai dai 2019-11 Dai
monero xmr - Monero
uniswap uni 2020-09 Uniswap
mantle mnt 2023-07 Mantle
bittensor tao 2023-03 Bittensor
aave aave 2020-10 Aave
near near 2020-10 NEAR Protocol
pepe pepe 2023-04 Pepe
zcash zec 2016-10 Zcash
ethereum-classic etc - Ethereum Classic
okb okb 2019-04 OKB
aptos apt 2022-10 Aptos
internet-computer icp 2021-05 Internet Computer
ondo-finance ondo 2024-01 Ondo
ethena ena 2024-04 Ethena
worldcoin-wld wld 2023-07 Worldcoin
kaspa kas 2022-06 Kaspa
polygon-ecosystem-token pol 2023-10 POL (ex-MATIC)
matic-network matic 2019-04 Polygon
arbitrum arb 2023-03 Arbitrum
cosmos atom 2019-03 Cosmos Hub
algorand algo 2019-06 Algorand
vechain vet 2018-07 VeChain
render-token render 2020-06 Render
filecoin fil 2020-10 Filecoin
fetch-ai fet 2019-03 Artificial Superintelligence Alliance
gatechain-token gt 2019-05 Gate
kucoin-shares kcs 2017-10 KuCoin
quant-network qnt 2018-08 Quant
sei-network sei 2023-08 Sei
jupiter-exchange-solana jup 2024-01 Jupiter
bonk bonk 2022-12 Bonk
official-trump trump 2025-01 Official Trump
celestia tia 2023-10 Celestia
injective-protocol inj 2020-10 Injective
optimism op 2022-05 Optimism
blockstack stx 2019-10 Stacks
immutable-x imx 2021-11 Immutable
curve-dao-token crv 2020-08 Curve DAO
the-graph grt 2020-12 The Graph
lido-dao ldo 2021-01 Lido DAO
floki floki 2021-07 FLOKI
nexo nexo 2018-05 NEXO
dogwifcoin wif 2023-12 dogwifhat
ethereum-name-service ens 2021-11 Ethereum Name Service
iota iota 2017-06 IOTA
tezos xtz 2017-10 Tezos
theta-token theta 2018-01 Theta Network
the-sandbox sand 2020-08 The Sandbox
jasmycoin jasmy 2021-02 JasmyCoin
gala gala 2020-09 GALA
pancakeswap-token cake 2020-09 PancakeSwap
flow flow 2021-01 Flow
decentraland mana 2017-09 Decentraland
raydium ray 2021-02 Raydium
pyth-network pyth 2023-11 Pyth Network
bittorrent btt 2019-02 BitTorrent
maker mkr 2017-12 Maker
starknet strk 2024-02 Starknet
neo NEO - NEO
eos eos 2017-07 EOS
elrond-erd-2 egld 2020-09 MultiversX
bitcoin-cash-sv bsv 2018-11 Bitcoin SV
helium hnt 2020-06 Helium
arweave ar 2020-05 Arweave
axie-infinity axs 2020-11 Axie Infinity
apecoin ape 2022-03 ApeCoin
havven snx 2018-03 Synthetix Network
compound-governance-token comp 2020-06 Compound
dydx-chain dydx 2023-10 dYdX
fantom ftm 2018-10 Fantom
sonic-3 s 2025-01 Sonic
conflux-token cfx 2019-12 Conflux
thorchain rune 2019-07 THORChain
pendle pendle 2021-04 Pendle
ecash xec 2021-07 eCash
chiliz chz 2019-06 Chiliz
zilliqa zil 2018-01 Zilliqa
dash dash - Dash
mina-protocol mina 2021-06 Mina Protocol
1inch 1inch 2020-12 1inch
gnosis gno 2017-05 Gnosis
kava kava 2019-10 Kava
trust-wallet-token twt 2020-04 Trust Wallet
wormhole w 2024-04 Wormhole
layerzero zro 2024-06 LayerZero
zksync zk 2024-06 ZKsync
eigenlayer eigen 2024-10 EigenCloud (prev. EigenLayer)
jito-governance-token jto 2023-12 Jito
dexe dexe 2020-10 DeXe
akash-network akt 2020-10 Akash Network
aerodrome-finance aero 2023-08 Aerodrome Finance
rocket-pool rpl 2018-03 Rocket Pool
oasis-network rose 2020-11 Oasis
terra-luna lunc 2019-07 Terra Luna Classic
terra-luna-2 luna 2022-05 Terra
0x zrx 2017-08 0x Protocol
basic-attention-token bat 2017-06 Basic Attention
loopring lrc 2017-08 Loopring
ravencoin rvn 2018-03 Ravencoin
enjincoin enj 2017-11 Enjin Coin
holotoken hot 2018-05 Holo
qtum QTUM 2017-05 Qtum
convex-finance cvx 2021-05 Convex Finance
yearn-finance yfi 2020-07 yearn.finance
sushi sushi 2020-08 Sushi
celo celo 2020-05 Celo
ankr ankr 2019-03 Ankr Network
livepeer lpt 2018-12 Livepeer
iotex iotx 2018-06 IoTeX
woo-network woo 2020-10 WOO
skale skl 2020-12 SKALE
siacoin sc - Siacoin
decred dcr - Decred
nem xem - NEM
waves waves - Waves
lisk lsk - Lisk
digibyte dgb - DigiByte
zencash zen 2017-06 Horizen
icon icx 2017-10 ICON
ontology ont 2018-03 Ontology
harmony one 2019-06 Harmony
band-protocol band 2019-09 Band Protocol
ocean-protocol ocean 2019-05 Ocean Protocol
storj storj 2017-07 Storj
golem glm - Golem
augur rep - Augur
steem steem - Steem
status snt 2017-06 Status
civic cvc 2017-07 Civic
bancor bnt 2017-06 Bancor Network
request-network req 2017-10 Request
power-ledger powr 2017-11 Powerledger
stratis strax - Stratis
syscoin sys - Syscoin
verge xvg - Verge
bitshares bts - BitShares
ardor ardr - Ardor
komodo kmd 2017-02 Komodo
pivx pivx - PIVX
nano xno 2017-03 Nano
""".strip()


class KnownCoin(NamedTuple):
    """A coin that exists; `since` is (year, month), None for before the catalog begins."""

    slug: str
    symbol: str
    since: tuple[int, int] | None
    name: str


def _read(line: str) -> KnownCoin:
    slug, symbol, month, name = line.split(" ", 3)
    year, _, number = month.partition("-")
    return KnownCoin(slug, symbol, (int(year), int(number)) if year else None, name)


KNOWN_COINS = tuple(map(_read, _TABLE.splitlines()))
