"""Words of captions in seven languages, for the bench of the encoding decision."""

TUNED = {
    "simplified": """长发 短发 黑发 金发 红发 银发 双马尾 单马尾 麻花辫 丸子头 刘海 卷发 蓝眼睛 绿眼睛 红色眼睛 黑色连衣裙
白衬衫 红色连衣裙 牛仔裤 校服 水手服 旗袍 汉服 和服 西装 毛衣 外套 短裙 长裙 高跟鞋 运动鞋 靴子 丝袜 帽子 围巾 手套 眼镜
墨镜 耳环 项链 戒指 手表 蝴蝶结 发带 猫耳 狐狸尾巴 翅膀 天使光环 微笑 大笑 哭泣 生气 害羞 惊讶 面无表情 闭眼 看着镜头 回头
侧脸 背影 半身像 全身像 特写 俯视 仰视 站立 坐着 躺着 跪着 跑步 跳跃 跳舞 拥抱 牵手 举手 双手叉腰 抱臂 撑伞 读书 弹吉他
户外 室内 教室 卧室 厨房 浴室 咖啡馆 图书馆 海边 沙滩 雪山 森林 草原 沙漠 城市 街道 夜景 星空 日落 日出 樱花 玫瑰 向日葵
雨天 雪天 阳光 月光 逆光 猫 狗 兔子 老虎 龙 鸟 鱼 马 油画 水彩 素描 插画 照片 黑白 高清 杰作 最佳质量 简单背景 白色背景
一个女孩 一个男孩 两个女孩 老人 婴儿 战士 魔法师 机器人 汽车 自行船 飞机 城堡 寺庙 桥 瀑布 湖 河流 女 山 水 花 树""",
    "traditional": """長髮 短髮 黑髮 金髮 紅髮 銀髮 雙馬尾 單馬尾 麻花辮 丸子頭 瀏海 捲髮 藍眼睛 綠眼睛 紅色眼睛 黑色連衣裙
白襯衫 紅色洋裝 牛仔褲 制服 水手服 旗袍 漢服 和服 西裝 毛衣 外套 短裙 長裙 高跟鞋 運動鞋 靴子 絲襪 帽子 圍巾 手套 眼鏡
墨鏡 耳環 項鍊 戒指 手錶 蝴蝶結 髮帶 貓耳 狐狸尾巴 翅膀 天使光環 微笑 大笑 哭泣 生氣 害羞 驚訝 面無表情 閉眼 看著鏡頭 回頭
側臉 背影 半身像 全身像 特寫 俯視 仰視 站立 坐著 躺著 跪著 跑步 跳躍 跳舞 擁抱 牽手 舉手 雙手叉腰 抱臂 撐傘 讀書 彈吉他
戶外 室內 教室 臥室 廚房 浴室 咖啡廳 圖書館 海邊 沙灘 雪山 森林 草原 沙漠 城市 街道 夜景 星空 日落 日出 櫻花 玫瑰 向日葵
雨天 雪天 陽光 月光 逆光 貓 狗 兔子 老虎 龍 鳥 魚 馬 油畫 水彩 素描 插畫 照片 黑白 高畫質 傑作 最佳品質 簡單背景 白色背景
一個女孩 一個男孩 兩個女孩 老人 嬰兒 戰士 魔法師 機器人 汽車 腳踏車 飛機 城堡 寺廟 橋 瀑布 湖 河流 女 山 水 花 樹""",
    "Japanese": """長い髪 短い髪 黒髪 金髪 赤髪 銀髪 ツインテール ポニーテール 三つ編み お団子 前髪 巻き髪 青い目 緑の目 赤い目
黒いドレス 白いシャツ 赤いドレス ジーンズ 制服 セーラー服 着物 浴衣 スーツ セーター コート ミニスカート ロングスカート
ハイヒール スニーカー ブーツ ストッキング 帽子 マフラー 手袋 眼鏡 サングラス イヤリング ネックレス 指輪 腕時計 リボン
ヘアバンド 猫耳 狐の尻尾 翼 天使の輪 笑顔 大笑い 涙 怒り 照れ 驚き 無表情 目を閉じる カメラ目線 振り返り 横顔 後ろ姿
上半身 全身 アップ 俯瞰 あおり 立つ 座る 寝そべる 膝立ち 走る ジャンプ 踊る 抱きしめる 手をつなぐ 腕組み 傘 読書 ギター
屋外 屋内 教室 寝室 台所 風呂 喫茶店 図書館 海辺 砂浜 雪山 森 草原 砂漠 都市 街 夜景 星空 夕焼け 朝日 桜 薔薇 ひまわり
雨 雪 日光 月光 逆光 猫 犬 うさぎ 虎 竜 鳥 魚 馬 油絵 水彩画 スケッチ イラスト 写真 白黒 高画質 傑作 最高品質
シンプルな背景 白背景 女の子 男の子 老人 赤ちゃん 戦士 魔法使い ロボット 車 自転車 飛行機 城 神社 橋 滝 湖 川 山 花 木""",
    "Korean": """긴 머리|짧은 머리|검은 머리|금발|빨간 머리|은발|트윈테일|포니테일|땋은 머리|앞머리|곱슬머리|파란 눈|초록 눈
빨간 눈|검은 드레스|흰 셔츠|빨간 드레스|청바지|교복|세일러복|한복|기모노|정장|스웨터|코트|미니스커트|긴 치마|하이힐
운동화|부츠|스타킹|모자|목도리|장갑|안경|선글라스|귀걸이|목걸이|반지|손목시계|리본|머리띠|고양이 귀|여우 꼬리|날개
미소|웃음|눈물|화난 표정|부끄러움|놀람|무표정|눈을 감은|정면을 보는|뒤돌아보는|옆모습|뒷모습|상반신|전신|클로즈업
서 있는|앉아 있는|누워 있는|달리는|점프|춤추는|포옹|손을 잡은|팔짱|우산|책 읽는|기타|야외|실내|교실|침실|부엌|욕실
카페|도서관|바닷가|해변|설산|숲|초원|사막|도시|거리|야경|별이 빛나는 하늘|노을|일출|벚꽃|장미|해바라기|비|눈|햇빛|달빛
역광|고양이|강아지|토끼|호랑이|용|새|물고기|말|유화|수채화|스케치|일러스트|사진|흑백|고화질|걸작|최고 품질|단순한 배경
흰 배경|소녀|소년|두 소녀|노인|아기|전사|마법사|로봇|자동차|자전거|비행기|성|절|다리|폭포|호수|강|산|꽃|나무""",
    "Russian": """длинные волосы|короткие волосы|чёрные волосы|светлые волосы|рыжие волосы|хвостик|коса|чёлка|кудри
голубые глаза|зелёные глаза|красные глаза|чёрное платье|белая рубашка|красное платье|джинсы|школьная форма|матроска|кимоно
костюм|свитер|пальто|короткая юбка|длинная юбка|туфли|кроссовки|сапоги|чулки|шляпа|шарф|перчатки|очки|серьги|ожерелье
кольцо|часы|бант|кошачьи уши|лисий хвост|крылья|нимб|улыбка|смех|слёзы|гнев|смущение|удивление|закрытые глаза|взгляд в камеру
профиль|вид сзади|по пояс|в полный рост|крупный план|вид сверху|стоит|сидит|лежит|бежит|прыжок|танец|объятия|зонт|чтение
гитара|на улице|в помещении|класс|спальня|кухня|ванная|кафе|библиотека|берег моря|пляж|снежные горы|лес|поле|пустыня|город
улица|ночной город|звёздное небо|закат|рассвет|сакура|роза|подсолнух|дождь|снег|солнечный свет|лунный свет|кот|собака|кролик
тигр|дракон|птица|рыба|лошадь|масло|акварель|набросок|иллюстрация|фото|чёрно-белое|шедевр|лучшее качество|простой фон
белый фон|девушка|мальчик|две девушки|старик|младенец|воин|маг|робот|машина|велосипед|самолёт|замок|храм|мост|водопад
озеро|река|горы|цветы|дерево""",
    "French": """cheveux longs|cheveux courts|cheveux noirs|cheveux dorés|frange|tresse|bouclés|yeux bleus|yeux verts|yeux fermés
robe noire|robe d'été|robe de soirée|chemise déchirée|jean usé|tenue d'écolière|blouse brodée|veste matelassée|manteau doublé
jupe plissée|bottes fourrées|béret|écharpe|gants|lunettes cerclées|boucle d'oreille dorée|collier ornée|montre|nœud|oreilles de chat
ailes déployées|auréole|sourire|éclat de rire|larmes|colère|gêné|étonné|regard caméra|de côté|vue arrière|portrait serré|plongée
debout|assise au café|allongé|à genoux|course|mêlée|élancé|bras croisés|parapluie|étude|guitare|extérieur|intérieur|salle d'école
chambre à coucher|cuisine équipée|salle de bains carrelée|bibliothèque|bord de mer|plage|forêt enneigée|pré fleuri|désert|cité
rue pavée|nuit étoilée|coucher de soleil|lumière d'été|cerisier|rosée|pluie|neige fraîche|clarté|contre-jour|chat tigré|chien mouillé
lièvre|tigre|dragon ailé|oiseau perché|poisson|étalon|peinture à l'huile|aquarelle|esquisse|rêverie|photo floutée|noir et blanc
chef-d'œuvre|qualité supérieure|arrière-plan épuré|fille|garçon|bébé|vieillard ridé|guerrière|sorcière|robot rouillé|vélo|voiture
avion|château|église|pont suspendu|cascade|lac gelé|rivière|montagne|fleur séchée|hêtre""",
    "German": """lange Haare|kurze Haare|blondes Mädchen|schwarzes Haar|geflochtene Zöpfe|Ponyfrisur|Löckchen|blaue Augen
grüne Augen|schwarzes Kleid|weißes Hemd|rotes Kleid|enge Jeanshose|Schuluniform|Trachtenröckchen|Kimonoärmel|Anzug|Strickjäckchen
Mäntel|kurzes Röckchen|Stöckelschuhe|Turnschuhe|Stiefel|Strümpfe|Hüte|Halstücher|Handschuhe|Gläser|Ohrstöpsel|Halskette
Ringe|Armbänder|Schleife|Katzenöhrchen|Fuchsschwänze|Flügel|Lächeln|Gelächter|Tränen|wütend|schüchtern|überrascht|müde
Blick über die Schulter|von hinten gesehen|Brustbild|Ganzkörper|Nahaufnahme für Poster|Vogelperspektive|stehend|träumend
liegend|kniend|hüpfend|Tänzerin|Umarmung|verschränkte Arme|Regenschirme|Bücher|Gitarrenklänge|draußen|drinnen|Klassenräume
Schlafsäle|Küche|Badewännchen|Café|Bücherei|Meeresküste|Strände|verschneite Gipfel|Wälder|Gräser|Wüste|Städte|Straße
nächtliche Lichter|Sternenhimmel über Bergen|Abenddämmerung|Frühling|Kirschblüte|Rosenblätter|Sonnenblumenöl|Regengüsse
Schneestürme|Mondschein|Kätzchen|Hündchen|Häschen|Tiger|Drachenflügel|Vögel|Fische|Pferdemähne|Ölgemälde|Aquarell|Skizze
Schwarzweiß|Meisterstück|beste Qualität|einfarbiger Hintergrund|weißer Grund|Mädchen|Junge|Säugling|Großmutter|Krieger
Magiergewänder|Roboter|Fahrräder|Flugzeug|Schlösser|Tempelsäulen|Brücke|Wasserfälle|Seeufer|Flüsse|Bäume""",
}

HELD_OUT = {
    "simplified": """波浪发 齐肩发 棕色头发 粉色头发 异色瞳 泪痣 雀斑 皱纹 胡子 酒窝 蕾丝睡裙 皮夹克 羽绒服 工装裤 背带裤 渔夫帽
草帽 头盔 铠甲 披风 斗篷 面纱 口罩 领带 腰带 背包 雨伞 气球 冰淇淋 棒棒糖 寿司 拉面 饺子 火锅 奶茶 威士忌 蜡烛 灯笼 烟花 风筝
挥手 托腮 伸懒腰 翘二郎腿 鞠躬 敬礼 射箭 骑马 游泳 钓鱼 滑雪 打篮球 踢足球 弹钢琴 拉小提琴 吹笛子 写字 画画 睡觉 发呆
屋顶 阳台 走廊 楼梯 地铁 火车站 机场 医院 超市 游乐园 动物园 博物馆 竹林 稻田 峡谷 悬崖 洞穴 火山 极光 彩虹 闪电 雾气
松鼠 刺猬 熊猫 企鹅 海豚 鲸鱼 孔雀 乌鸦 蜻蜓 蜘蛛 麒麟 凤凰 薰衣草 郁金香 蒲公英 枫叶 仙人掌 蘑菇 赛博朋克 蒸汽朋克
浮世绘 水墨画 像素风 低多边形 粘土 剪纸 浮雕 壁画 黄金比例 景深 柔光 鱼眼镜头 长曝光 胶片颗粒 忧郁 愤怒 温馨 诡异 庄严""",
    "traditional": """波浪捲髮 齊肩髮 棕色頭髮 粉紅色頭髮 異色瞳 淚痣 雀斑 皺紋 鬍子 酒窩 蕾絲睡裙 皮夾克 羽絨衣 工裝褲 吊帶褲 漁夫帽
草帽 頭盔 鎧甲 披風 斗篷 面紗 口罩 領帶 腰帶 背包 雨傘 氣球 冰淇淋 棒棒糖 壽司 拉麵 餃子 火鍋 奶茶 威士忌 蠟燭 燈籠 煙火 風箏
揮手 托腮 伸懶腰 翹二郎腿 鞠躬 敬禮 射箭 騎馬 游泳 釣魚 滑雪 打籃球 踢足球 彈鋼琴 拉小提琴 吹笛子 寫字 畫畫 睡覺 發呆
屋頂 陽台 走廊 樓梯 捷運 火車站 機場 醫院 超市 遊樂園 動物園 博物館 竹林 稻田 峽谷 懸崖 洞穴 火山 極光 彩虹 閃電 霧氣
松鼠 刺蝟 熊貓 企鵝 海豚 鯨魚 孔雀 烏鴉 蜻蜓 蜘蛛 麒麟 鳳凰 薰衣草 鬱金香 蒲公英 楓葉 仙人掌 蘑菇 賽博龐克 蒸汽龐克
浮世繪 水墨畫 像素風 低多邊形 黏土 剪紙 浮雕 壁畫 黃金比例 景深 柔光 魚眼鏡頭 長曝光 底片顆粒 憂鬱 憤怒 溫馨 詭異 莊嚴""",
    "Japanese": """ウェーブヘア 肩までの髪 茶髪 ピンクの髪 オッドアイ 泣きぼくろ そばかす しわ ひげ えくぼ ネグリジェ 革ジャン ダウン
オーバーオール 麦わら帽子 兜 甲冑 マント ベール マスク ネクタイ ベルト リュック 風船 アイスクリーム 寿司 ラーメン 餃子 鍋 蝋燭 提灯
花火 凧 手を振る 頬杖 背伸び お辞儀 敬礼 弓道 乗馬 水泳 釣り スキー 野球 サッカー ピアノ バイオリン 笛 書道 昼寝 屋上 縁側
廊下 階段 地下鉄 駅 空港 病院 遊園地 動物園 博物館 竹林 田んぼ 渓谷 崖 洞窟 火山 オーロラ 虹 稲妻 霧 りす はりねずみ パンダ
ペンギン いるか くじら 孔雀 烏 とんぼ 蜘蛛 麒麟 鳳凰 ラベンダー チューリップ たんぽぽ 紅葉 サボテン きのこ サイバーパンク 浮世絵
水墨画 ドット絵 粘土 切り絵 壁画 被写界深度 柔らかい光 魚眼 憂鬱 怒る 温かい 不気味 荘厳""",
    "Korean": """웨이브 머리|단발머리|갈색 머리|분홍 머리|오드아이|눈물점|주근깨|주름|수염|보조개|가죽 재킷|패딩|멜빵바지|밀짚모자|투구
갑옷|망토|면사포|마스크|넥타이|허리띠|배낭|풍선|아이스크림|초밥|라면|만두|촛불|등불|불꽃놀이|연|손을 흔드는|턱을 괸|기지개
경례|활쏘기|승마|수영|낚시|스키|농구|축구|피아노|바이올린|피리|서예|낮잠|옥상|베란다|복도|계단|지하철|기차역|공항|병원|놀이공원
동물원|박물관|대나무 숲|논|협곡|절벽|동굴|화산|오로라|무지개|번개|안개|다람쥐|고슴도치|판다|펭귄|돌고래|고래|공작|까마귀|잠자리
거미|봉황|라벤더|튤립|민들레|단풍|선인장|버섯|사이버펑크|수묵화|픽셀 아트|점토|벽화|얕은 심도|부드러운 빛|어안 렌즈|우울|분노|따뜻한|엄숙""",
    "Russian": """волнистые волосы|каре|каштановые волосы|розовые волосы|веснушки|морщины|борода|ямочки на щеках|кожаная куртка|пуховик
комбинезон|соломенная шляпа|шлем|доспехи|плащ|вуаль|маска|галстук|пояс|рюкзак|воздушный шар|мороженое|суши|лапша|пельмени|свечи
фонарь|фейерверк|воздушный змей|машет рукой|подпирает щёку|поклон|стрельба из лука|верхом|плавание|рыбалка|лыжи|футбол|пианино
скрипка|флейта|пишет|спит|крыша|балкон|коридор|лестница|метро|вокзал|аэропорт|больница|зоопарк|музей|ущелье|обрыв|пещера|вулкан
северное сияние|радуга|молния|туман|белка|ёж|панда|пингвин|дельфин|кит|павлин|ворона|стрекоза|паук|жар-птица|лаванда|тюльпан
одуванчик|клён|кактус|гриб|киберпанк|гравюра|пиксели|глина|фреска|глубина резкости|мягкий свет|рыбий глаз|грусть|ярость|уют|жутко""",
    "French": """cheveux ondulés|carré plongeant|châtain clair|mèche rosée|vairons|tâches de rousseur|ridé|barbe négligée|fossette|nuisette
blouson clouté|doudoune|salopette rayée|chapeau de paille tressée|casque à cornes|armure rouillée|cape élimée|voilée|masque vénitien
cravate dénouée|sac à dos|ballon gonflé|crème glacée|sushis|nouilles épicées|thé glacé|bougie allumée|lampion|feux d'artifice tirés
cerf-volant|geste de la main levée|accoudé|étirement|révérence|tir à l'arc|à cheval|nage|pêche|ski|violoncelle posé|flûte|écrit
endormie|toit|balcon fleuri|escalier|métro|gare désaffectée|aéroport|hôpital|fête foraine|musée|bambouseraie|rizière|défilé|falaise
grotte éclairée|volcan|aurore boréale|éclair|brume épaisse|écureuil|hérisson|panda|dauphin|paon|corneille|libellule|araignée|phénix
tulipe|pissenlit|érable|cactus|champignon vénéneux|estampe|pâte à modeler|fresque|fumée|mélancolie|fureur|étrange|lumière tamisée""",
    "German": """welliges Haar|Kurzhaarträgerin|brünett|rosa Strähnen|Sommersprossen überall|Fältchen|bärtig|Grübchen|Nachthemdchen für Damen
Lederjacke mit Reißverschluss|Daunenmäntel|Latzhose|Strohhüte|Helm aus Stahl für Ritter|Rüstung|Umhänge|Brautschleier|Masken
Krawattenknöpfe|Gürtel|Rucksäcke|Luftballons fürs Fest|Eistüte|Nudeln|Knödel|Kerzenstöcke|Feuerwerkskörper|Drachen|winkende Hände
aufgestützt|Verbeugung vor dem König|Bogenschütze|Reiterin zu Fuß|Schwimmärmel|Angelköder|Skifahrerhütte|Fußball|Klaviertöne
Geigenbögen|Flöte|schläft|Dächer|Balkontür|Flure|Treppenhäuser|U-Bahnhöfe|Flughäfen|Krankenhausgänge|Zoogehege für Bären|Völkerkunde
Schlucht|Höhle|Vulkanausbrüche|Nordlichter am Südpol|Regenbögen|Blitzschläge|Nebelbänke|Eichhörnchen|Igelpärchen|Krähen|Libellenflügel
Spinnfäden|Phönix|Löwenzahn|Ahornblätter|Kakteenblüte|Fliegenpilzhüte|Holzschnittkünstler|Tonfigürchen|Gemälde|Tiefenschärfe|Süße""",
}


def words(lists: dict[str, str], language: str) -> list[str]:
    """Return the words of a language, each once."""
    text = lists[language]
    parts = text.replace("\n", "|").split("|") if "|" in text else text.split()
    return list(dict.fromkeys(part.strip() for part in parts))
