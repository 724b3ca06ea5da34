"""A caption -> whether it says nothing of its picture: words that fit any picture."""

import re

_WORD = re.compile(r"\w+")
_GENERIC = frozenset(
    [
        "image",
        "images",
        "picture",
        "pictures",
        "photo",
        "photos",
        "photograph",
        "pic",
        "img",
        "untitled",
        "test",
        "caption",
        "none",
        "null",
        "person",
        "people",
        "man",
        "woman",
        "boy",
        "girl",
        "human",
        "object",
        "thing",
        "subject",
        "style",
        "art",
        "artwork",
        "drawing",
        "illustration",
        "图片",
        "照片",
        "图像",
        "图",
        "人",
        "人物",
        "女人",
        "男人",
        "女孩",
        "男孩",
        "物体",
        "圖片",
        "相片",
        "圖像",
        "画像",
        "写真",
        "人间",
        "사진",
        "그림",
        "이미지",
        "사람",
        "фото",
        "изображение",
        "картинка",
        "человек",
        "portrait",
        "bild",
        "foto",
        "imagen",
        "imagem",
        "未命名",
        "无",
        "無题",
    ]
)
_FILLERS = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "this",
        "is",
        "some",
        "one",
        "1",
        "一",
        "一张",
        "一個",
        "一个",
        "個",
        "个",
        "張",
        "张",
        "的",
    ]
)


def is_generic(text: str) -> bool:
    """Tell whether a caption has only words that fit any picture."""
    found = [word for word in _WORD.findall(text.casefold()) if word not in _FILLERS]
    return bool(found) and all(word in _GENERIC for word in found)
